"""Pages as blocks, what is read off them, and snapshots as files."""

# ruff: noqa: E501 (pages and their words are kept on the lines they come on)

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from ecoagent.crawlers import HashMismatchError, LockEntry
from ecoagent.crawlers.artifacts import ArtifactStore, verify
from ecoagent.crawlers.web import crewai_docs, langchain_docs, n8n_verified
from ecoagent.crawlers.web.content import Block, addresses, blocks
from ecoagent.crawlers.web.documents import Document, bundle, follow, read_bundle, slim
from ecoagent.crawlers.web.errors import WebError
from ecoagent.crawlers.web.facts import (
    deprecation_of,
    description_of,
    env_auth_of,
    imports,
    installed,
    lead_of,
    prose_of,
)
from ecoagent.settings import HttpSettings, UserError

SITE = "https://docs.example.org"


def html(body: str, url: str = f"{SITE}/tools/gull") -> Document:
    text = f"<!DOCTYPE html><html><head><title>x</title></head><body>{body}</body></html>"
    return Document(url, 200, None, "text/html", slim(text))


def md(body: str, url: str = f"{SITE}/tools/gull") -> Document:
    return Document(url, 200, None, "text/markdown", slim(body))


def entry(name: str, source: str, url: str = f"{SITE}/tools") -> LockEntry:
    return LockEntry(
        source=source,  # type: ignore[arg-type]
        ecosystem="http",
        name=name,
        version="0" * 12,
        filename=f"{name}.jsonl",
        sha256="0" * 64,
        size=1,
        url=url,
    )


HTML = html(
    """
    <nav><a href="/tools/nav">Nav</a><p>Navigation is no paragraph at all.</p></nav>
    <main><div id="content-area">
      <header><h1>Gull <span>search</span></h1><div><p>Searches the sea for you, gull by gull.</p></div></header>
      <div data-callout-type="warning"><p>Gull is deprecated. Use the Albatross tool instead.</p></div>
      <div class="badges"><a href="https://x.example/project/langchain-gull/"><img src="/badge/langchain-gull/v"></a></div>
      <span data-as="p">Gull finds <strong>fish</strong> near a place, and<br>says how many.</span>
      <table><thead><tr><th>Tool</th><th>Price</th></tr></thead>
        <tbody><tr><td><a href="tern#x">Tern</a></td><td>Free</td></tr></tbody></table>
      <a class="card" href="/tools/puffin"><h2>Puffin</h2><div><p>Digs for sand eels.</p></div></a>
      <ul><li>One <a href="https://other.example">thing</a></li></ul>
      <pre><code><span>from langchain_gull import (</span>
<span>    Gull,  # the tool</span>
<span>)</span></code></pre>
    </div></main><footer><p>All rights of this site are reserved.</p></footer>
    """
)

MARKDOWN = md(
    """---
title: "Gull search"
description: "Searches the sea for you, gull by gull."
---
import X from '/snippets/x.mdx';

{/* A comment that is nothing. */}

<Warning>
  Gull is deprecated. Use the Albatross tool instead.
</Warning>

[![Version](/badge/langchain-gull/v)](https://x.example/project/langchain-gull/)

Gull finds **fish** near a [place](https://p.example/a_(b)), and
says `how_many`.

| Tool | Price |
| :--- | :---: |
| [`Tern`](tern#x) | Free \\| paid |

<CardGroup cols={2}>
  <Card
    title="Puffin"
    href="/tools/puffin"
  >
    Digs for sand eels.
  </Card>
  <Card title="Auk" href="/tools/auk" />
</CardGroup>

- One [thing](https://other.example)

```python Code icon="x"
from langchain_gull import (
    Gull,  # the tool
)
```
"""
)


@pytest.mark.parametrize("page", [HTML, MARKDOWN], ids=["html", "markdown"])
def test_both_forms_give_the_same_facts(page: Document) -> None:
    found = blocks(page)
    kinds = [b.kind for b in found]
    assert found[0] == Block("title", "Gull search", 1)
    assert lead_of(found) == "Searches the sea for you, gull by gull."
    assert kinds.count("notice") == 1
    assert description_of(found).startswith("Gull finds fish near a place, and")
    row = next(b for b in found if b.kind == "row")
    assert (row.cells[0].text, row.cells[0].links[0].href) == ("Tern", f"{SITE}/tools/tern#x")
    assert row.headers == ("Tool", "Price")
    card = next(b for b in found if b.kind == "card")
    assert (card.label, card.text) == ("Puffin", "Digs for sand eels.")
    assert card.links[0].href == f"{SITE}/tools/puffin"
    assert imports(found) == [("langchain_gull", "Gull")]
    told = deprecation_of(found)
    assert (told.state, told.replacement) == (True, "Albatross tool")
    assert not any("Navigation" in b.text or "reserved" in b.text for b in found)
    linked = addresses(page)
    assert {f"{SITE}/tools/tern#x", f"{SITE}/tools/puffin", "https://other.example"} <= set(linked)
    assert len(linked) == len(set(linked))


def test_markdown_traps() -> None:
    found = blocks(
        md("> ## Documentation Index\n> Fetch all of it.\n\n# A_b_c\n\n> [Gull](u) is a **bird** of the sea.\n"
           "> It eats fish.\n\n~~~\n# no heading\n| no | row |\n~~~\n\n***\n\nTwo words _stay_ snake_case_name 2 * 3 * 4.\n"
           "\n```python\nnever closed\n")
    )  # fmt: skip
    assert [(b.kind, b.text) for b in found] == [
        ("notice", "## Documentation Index Fetch all of it."),
        ("title", "A_b_c"),
        ("lead", "Gull is a bird of the sea. It eats fish."),
        ("code", "# no heading\n| no | row |"),
        ("paragraph", "Two words stay snake_case_name 2 * 3 * 4."),
        ("code", "never closed"),
    ]


@pytest.mark.parametrize(
    "text", ["", "<html>", "<p", "|", "| a |\n|---|", "---\nx", "<Card", "<Note>", "```", "[a](", "> "]
)
def test_broken_pages_are_read_as_far_as_they_go(text: str) -> None:
    for page in (md(text), html(text)):
        found = blocks(page)
        # Nothing is invented: every word read stands in the page.
        assert all(word in text for block in found for word in block.text.replace(" | ", " ").split())
        assert all(address.startswith("http") for address in addresses(page))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Gull finds fish near a place.", "Gull finds fish near a place."),
        ("This guide goes over how to use Gull.", ""),
        ("This will help you get started. The toolkit reads letters and sends them.", "The toolkit reads letters and sends them."),
        ("This tool shows an example of a page by its address.", "This tool shows an example of a page by its address."),
        ("You will need a key to use this tool.", ""),
        ("To install the package run this line:", ""),
        ("Integrate with the Gull tool using LangChain Python.", ""),
        ("Fetch the complete documentation index at: https://x/llms.txt", ""),
        ("Too short.", ""),
        ("We are still working on improving tools here.", ""),
    ],
)  # fmt: skip
def test_what_counts_as_a_description(text: str, expected: str) -> None:
    assert prose_of(Block("paragraph", text)) == expected


def test_description_stops_where_use_begins() -> None:
    page = blocks(
        md(
            "# T\n\n```bash\npip install langchain-gull\nexport GULL_KEY=x\n```\n\n## Setup\n\nSome words on how it is set up here.\n"
        )
    )
    assert description_of(page) == ""
    page = blocks(md("# T\n\n```bash\npip install x\n```\n\nGull finds fish near a place.\n"))
    assert description_of(page) == "Gull finds fish near a place."
    page = blocks(
        md(
            "# T\n\n```python\nprint(1)\n```\n\nThe answer shown above is one.\n\n## Description\n\nGull finds fish near you.\n"
        )
    )
    assert description_of(page) == "Gull finds fish near you."


@pytest.mark.parametrize(
    "piece",
    [
        "<script>", "<!--", "<div>", "<a href='x'>", "<table><tr>", "[", "[a](", "![a](", "**a ", "`", "<a href='", "{/*",
        "<Note>\n", "<Card ", "```\n", "| a ", "> ", "\n", "from a import (", "os.environ['A", "pip install \n\n", "&#x",
    ],
)  # fmt: skip
def test_hostile_pages_take_no_time(piece: str) -> None:
    started = time.monotonic()
    for page in (
        md("# T\n\n" + piece * 20_000),
        html(piece * 4_000),
        md("```\n" + piece * 20_000 + "x\n```"),
    ):
        found = blocks(page)
        description_of(found), imports(found), installed(found), env_auth_of(found), deprecation_of(found)
        addresses(page)
    assert time.monotonic() - started < 10


def test_environment_names() -> None:
    code = """
import os
os.environ["GULL_KEY"] = getpass()
if not os.environ.get("GULL_REGION"): pass
os.environ["LANGSMITH_TRACING"] = "true"
x = os.getenv('GULL_URL', "x")
"""
    page = blocks(
        md(
            f"```python\n{code}```\n\n```bash\nexport TERN_TOKEN='a'\n```\n\n## Use within an agent\n\n```python\nos.environ[\"OPENAI_API_KEY\"] = 1\n```\n"
        )
    )
    auth = env_auth_of(page)
    assert {a.name: a.required for a in auth} == {
        "GULL_KEY": True,
        "GULL_REGION": None,
        "GULL_URL": None,
        "TERN_TOKEN": True,
    }
    assert {a.origin for a in auth} == {"docs"}
    only = env_auth_of(blocks(md('```python\nos.environ["OPENAI_API_KEY"] = 1\n```\n')))
    assert [a.name for a in only] == ["OPENAI_API_KEY"]


def test_imports_and_installs() -> None:
    code = "from a.b import C as D, e  # x\nfrom f import (\n    G,\n    H as I,\n)\n>>> from j import K\nimport l\nfrom . import m\n"
    page = [
        Block("code", code),
        Block("code", "%pip install -qU langchain-gull 'crewai[tools]' x==1.0 # y"),
        Block("paragraph", "from n import O"),
    ]
    assert imports(page) == [("a.b", "C"), ("a.b", "e"), ("f", "G"), ("f", "H"), ("j", "K")]
    assert installed(page) == ["langchain-gull", "crewai", "x"]


def test_langchain_class_is_the_tools_own() -> None:
    code = (
        "from langchain_openai import ChatOpenAI\nfrom langchain.agents import AgentExecutor\n"
        "from langchain_community.utilities import GullAPIWrapper\nfrom langchain_community.tools import GullRun\n"
        "from langchain_tern import TernConfig, Tern\n"
    )
    page = [Block("code", code)]
    assert langchain_docs.tool_class(page, None) == ("langchain_community.tools", "GullRun")
    assert langchain_docs.tool_class(page, "langchain-tern") == ("langchain_tern", "Tern")
    assert langchain_docs.tool_class([Block("code", "from langchain_openai import ChatOpenAI")], None) is None


def test_langchain_same_class_twice_and_final_address() -> None:
    index = md(
        "# T\n\n| Tool | P |\n|---|---|\n| [One](/tools/one) | Free |\n| [Two](/tools/two) | Free |\n",
        f"{SITE}/tools",
    )
    text = "# {}\n\nGull finds fish near a place.\n\n```python\nfrom langchain_gull import GullTool\n```\n"
    one, two = md(text.format("One"), f"{SITE}/tools/one"), md(text.format("Two"), f"{SITE}/tools/two")
    moved = Document(two.url, 200, None, two.content_type, two.body, f"{SITE}/tools/three")
    found = langchain_docs.parse([index, one, moved], entry("langchain-docs", "langchain"))
    assert [(c.record.id, c.reason) for c in found] == [
        ("langchain:langchain_gull.GullTool", None),
        ("langchain:langchain_gull.GullTool", "duplicate"),
    ]
    assert found[1].record.docs_url == f"{SITE}/tools/three"
    assert found[0].record.group_id == "langchain-gull"


def test_crewai_class_is_the_one_the_address_names() -> None:
    page = [
        Block(
            "code",
            "from crewai_tools import FileReadTool, GullSearchTool, adapters\nfrom crewai import Agent",
        )
    ]
    assert crewai_docs.tool_class(page, "gullsearchtool") == "GullSearchTool"
    assert crewai_docs.tool_class(page, "gull-search") == "GullSearchTool"
    assert crewai_docs.tool_class(page, "other") == "FileReadTool"
    assert crewai_docs.tool_class([Block("code", "from crewai import Agent")], "x") is None


@pytest.mark.parametrize("body", ["{", '"x"', '{"tools": 1}', "{}"])
def test_specifications_of_another_form(body: str) -> None:
    page = Document(f"{SITE}/s.json", 200, None, "text/plain", body)
    with pytest.raises(UserError, match=r"crewai_specs"):
        crewai_docs.parse_specs([page], entry("crewai-specs", "crewai"))


def node(package: Any, name: Any, number: int = 1, **more: Any) -> dict[str, Any]:
    return {"id": number, "attributes": {"packageName": package, "name": name, "displayName": "X", **more}}


def listing(*items: Any, number: int = 1) -> Document:
    url = n8n_verified.page_url(f"{SITE}/api/nodes?fields=a", number)
    return Document(url, 200, None, "application/json", json.dumps({"data": items, "meta": {}}))


def test_n8n_full_description_and_names() -> None:
    described = {
        "name": "@s/n8n-nodes-preview-gull.gull",
        "displayName": "Gull",
        "description": "Finds gulls",
        "group": ["trigger"],
        "version": 2,
        "credentials": [{"name": "gullApi", "required": True}],
        "properties": [
            {"name": "resource", "options": [{"name": "Bird", "value": "bird"}]},
            {
                "name": "operation",
                "type": "options",
                "displayOptions": {"show": {"resource": ["bird"]}},
                "options": [{"name": "Get", "value": "get", "action": "Get a bird"}],
            },
        ],
    }
    page = listing(
        node(
            "@s/n8n-nodes-gull",
            "x",
            nodeDescription=described,
            createdAt="2025-03-04T05:06:07.000Z",
            numberOfDownloads=5,
            npmVersion="1.2.3",
        )
    )
    full = n8n_verified.parse([page], entry("n8n-verified", "n8n_community"))[0].record
    assert (full.id, full.kind, full.version) == ("n8n:@s/n8n-nodes-gull.gull", "trigger", "2")
    assert (full.published_at, full.downloads, full.verified) == ("2025-03-04", 5, True)
    assert full.auth_required == "yes"
    assert full.provenance.artifact == "n8n-verified"
    split = n8n_verified.parse([page], entry("n8n-verified", "n8n_community"), "operation")
    assert [c.record.id for c in split] == ["n8n:@s/n8n-nodes-gull.gull/bird.get"]
    listed = next(n8n_verified.entries([page]))
    assert (listed.package, listed.version) == ("@s/n8n-nodes-gull", "1.2.3")


def test_n8n_short_entries_and_bad_names() -> None:
    pages = [
        listing(
            node("n8n-nodes-a", "n8n-nodes-a.a", description="Does a thing"),
            node("-g", "x.y"),
            node(None, None),
            "text",
        ),
        listing(
            node("n8n-nodes-a", "n8n-nodes-a.a", description="Again"), node("n8n-nodes-b", "b"), number=2
        ),
        Document(n8n_verified.page_url(f"{SITE}/api/nodes", 3), 500, "server_error", "", ""),
    ]
    found = n8n_verified.parse(pages, entry("n8n-verified", "n8n_community"))
    by_id = {c.record.id: c for c in found}
    kept = by_id["n8n:n8n-nodes-a.a"].record
    assert (kept.description, kept.input_schema, kept.auth_required, kept.trigger) == (
        "Does a thing",
        None,
        "unknown",
        None,
    )
    assert by_id["n8n:n8n-nodes-b.b"].reason == "no_description"
    assert sorted(str(c.reason) for c in found) == [
        "None",
        "bad_name",
        "bad_name",
        "dead_page",
        "no_description",
    ]


class Site:
    """A client whose pages are given; what is asked is noted."""

    def __init__(self, pages: dict[str, str]) -> None:
        self.pages, self.asked = pages, list[str]()

    def get(self, url: str, *, soft_404: bool = True, max_age_h: float | None = None) -> Any:
        self.asked.append(url)
        if url not in self.pages:
            raise WebError("not_found", url, "is not there", status=404)

        class Page:
            status, content_type, text = 200, "text/markdown; charset=utf-8", self.pages[url]

        Page.url = url  # type: ignore[attr-defined]
        return Page()


def test_follow_stays_on_the_host_and_ends() -> None:
    pages = {
        f"{SITE}/a": "[b](/b) [c](https://other.example/c) [m](mailto:x@y) [b](/b#2) [gone](/gone)",
        f"{SITE}/b": "[a](/a) [d](/d)",
        f"{SITE}/d": "end",
    }
    site = Site(pages)
    found = follow(site, f"{SITE}/a#top", addresses, HttpSettings(), print)
    assert site.asked == [f"{SITE}/{x}" for x in ("a", "b", "gone", "d")]
    assert {d.url: d.reason for d in found}[f"{SITE}/gone"] == "not_found"
    with pytest.raises(UserError, match="more than 2 pages"):
        follow(Site(pages), f"{SITE}/a", addresses, HttpSettings(max_pages=2), print)
    with pytest.raises(UserError, match=r"index page .*not_found"):
        follow(Site({}), f"{SITE}/a", addresses, HttpSettings(), print)


def test_n8n_totals_are_not_believed() -> None:
    def body(*numbers: int) -> str:
        items = [node(f"n8n-nodes-x{n}", "x", n) for n in numbers]
        return json.dumps({"data": items, "meta": {"pagination": {"pageCount": 1, "total": 1}}})

    start = f"{SITE}/api/nodes"
    pages = {
        n8n_verified.page_url(start, n): t
        for n, t in ((1, body(1, 2)), (2, body(2, 3)), (4, body(4)), (5, body(4)))
    }
    site = Site(pages)
    found = n8n_verified.collect(site, HttpSettings(n8n_verified=start), print)
    # Page 3 is dead, page 5 brings nothing new: it is where the list ends.
    assert [d.reason for d in found] == [None, None, "not_found", None]
    assert len(list(n8n_verified.entries(found))) == 4
    looping = Site({n8n_verified.page_url(start, n): body(1) for n in range(1, 9)})
    assert len(n8n_verified.collect(looping, HttpSettings(n8n_verified=start), print)) == 1


def test_bundles(tmp_path: Path) -> None:
    pages = [
        Document("u2", 200, None, "text/html", "é\u2028<p>\n"),
        Document("u1", 0, "timeout", "", ""),
        Document("u3", 200, None, "", "x", "u4"),
    ]
    data = bundle(pages)
    assert data == bundle(reversed([*pages, pages[0]]))
    path = tmp_path / "b.jsonl"
    path.write_bytes(data)
    assert read_bundle(path) == sorted(pages, key=lambda d: d.url)
    with pytest.raises(ValueError, match="two different pages"):
        bundle([pages[0], Document("u2", 200, None, "", "other")])
    path.write_bytes(data + b'{"url": 1}\n')
    with pytest.raises(UserError, match=r"b\.jsonl line 4 is no page"):
        read_bundle(path)
    with pytest.raises(UserError, match="cannot be read"):
        read_bundle(tmp_path / "none.jsonl")


def test_builds_of_a_site_give_the_same_bytes() -> None:
    page = "<html><head><script>{}</script><link href='{}'></head><body><!-- {} --><p>Hi</p><style>{}</style></body></html>"
    assert slim(page.replace("{}", "a1")) == slim(page.replace("{}", "b2").replace("</html>", "</html>  "))
    assert slim("a  \r\nb\n\n") == "a\nb\n"


def test_changed_pages_have_a_remedy_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "langchain-docs.jsonl"
    path.write_bytes(b"{}\n")
    with pytest.raises(HashMismatchError, match="have changed since they were pinned") as error:
        verify(entry("langchain-docs", "langchain"), path)
    assert "--update-lock --backend http" in str(error.value.remedy)


def test_store_collects_what_is_missing(tmp_path: Path) -> None:
    asked: list[str] = []

    def collect(name: str, version: str, folder: Path, *, timeout_s: float) -> Path:
        asked.append(name)
        path = folder / f"{name}.jsonl"
        path.write_bytes(b"other\n")
        return path

    store = ArtifactStore(tmp_path, clients={"http": collect})
    with pytest.raises(HashMismatchError):
        store.fetch(entry("langchain-docs", "langchain"))
    assert asked == ["langchain-docs"]
    assert set(store.clients) == {"pip", "npm", "http"}
