"""The four documentation catalogs, mounted on a stand-in server.

with StandIn() as web:
    where = mount(web)
    where.langchain_docs        # address of LangChain's index of tools
    TRUTH["langchain_docs"]     # what a careful human reads there
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from tests.standin.mintlify import Page, Site, llms_txt, markdown, not_found, render
from tests.standin.pages import crewai, langchain, n8n, npm
from tests.standin.server import JSON, Answer, Reply, Request, StandIn, query, redirect
from tests.standin.truth import TRUTH

__all__ = ["TRUTH", "Addresses", "mount"]

MARKDOWN = "text/markdown; charset=utf-8"
SPECS_PATH = "/crewAIInc/crewAI/main/lib/crewai-tools/tool.specs.json"
ROBOTS = f"""User-agent: *
Disallow: {langchain.ROOT}/internal/
Allow: /
"""


@dataclass(frozen=True)
class Addresses:
    """Where the catalogs are; names as in ``HttpSettings``."""

    langchain_docs: str
    crewai_docs: str
    crewai_specs: str
    n8n_verified: str
    npm_registry: str
    npm_registry_looping: str
    """The same, but its search answers page one again from a certain offset on."""


def mount(web: StandIn, *, robots: bool = True) -> Addresses:
    """Put the sites on the server, with their robots.txt unless told otherwise."""
    if robots:
        web.set_robots(ROBOTS)
    for site, pages in (
        (langchain.SITE, [langchain.INDEX, *langchain.PAGES]),
        (crewai.SITE, [crewai.OVERVIEW, *crewai.CATEGORIES, *crewai.TOOLS]),
    ):
        for page in pages:
            _add(web, page, site)
    _langchain_specials(web)
    _crewai_specials(web)
    shown = [langchain.INDEX, *langchain.PAGES, crewai.OVERVIEW, *crewai.CATEGORIES, *crewai.TOOLS]
    web.add(
        "/llms.txt", Reply(llms_txt("Docs", shown, "").encode(), content_type="text/plain; charset=utf-8")
    )
    web.add(
        SPECS_PATH, Reply(_json(crewai.SPECS, indent=2), content_type="text/plain; charset=utf-8", etag=True)
    )
    web.add("/api/community-nodes", _verified)
    web.add("/npm/-/v1/search", _search)
    web.add("/npm-loop/-/v1/search", _search)
    return Addresses(
        web.url(langchain.ROOT),
        web.url(f"{crewai.ROOT}/overview"),
        web.url(SPECS_PATH),
        web.url("/api/community-nodes"),
        web.url("/npm/"),
        web.url("/npm-loop/"),
    )


def _add(web: StandIn, page: Page, site: Site) -> None:
    html = Reply(render(page, site).encode(), etag=True, modified=True)
    text = Reply(markdown(page, site).encode(), content_type=MARKDOWN, etag=True)
    web.add(page.path, html)
    web.add(f"{page.path}/", html)
    web.add(f"{page.path}.md", text)


def _langchain_specials(web: StandIn) -> None:
    root, missing = langchain.ROOT, not_found(langchain.SITE.name).encode()
    soft, hard = Reply(missing, etag=True), Reply(missing, status=404)
    web.add("/oss/*", hard)
    for end in ("", ".md"):
        web.add(f"{root}/tidepool_search{end}", hard)
        web.add(f"{root}/lanternfish_search{end}", soft)
        web.add(f"{root}/grafwald{end}", Reply(b"<h1>Gone</h1>", status=410))
        web.add(f"{root}/hollow{end}", Reply(b""))
        web.add(f"{root}/paintbox_image{end}", redirect("http://elsewhere.example/paintbox"))
        web.add(f"{root}/paintbox_legacy{end}", redirect(f"{root}/paintbox_video{end}", 308))
        _after(web, f"{root}/coinherd{end}", Reply(b"oops", status=500), 2)
        _after(web, f"{root}/mintleaf{end}", Reply(b"busy", status=429, headers={"Retry-After": "1"}), 1)


def _crewai_specials(web: StandIn) -> None:
    missing = not_found(crewai.SITE.name).encode()
    web.add("/en/*", Reply(missing, status=404))
    for end in ("", ".md"):
        web.add(f"{crewai.ROOT}/search-research/wrenvideotool{end}", Reply(missing, status=404))
        web.add(f"{crewai.ROOT}/file-document/milltabletool{end}", Reply(missing, etag=True))
    # Other languages and versions are whole sites of their own: who follows them sees everything again.
    others = [f"/{code}" for code in crewai.LANGUAGES[1:]] + [f"/{v}/en" for v in crewai.VERSIONS]
    for other in others:
        for page in (crewai.OVERVIEW, *crewai.CATEGORIES, *crewai.TOOLS):
            moved = page.path.removeprefix("/en")
            web.add(f"{other}{moved}", Reply(render(replace(page, path=other + moved), crewai.SITE).encode()))


def _after(web: StandIn, path: str, trouble: Reply, times: int) -> None:
    """The page at ``path`` comes only after ``times`` answers of trouble."""
    page = web.routes[path]
    assert isinstance(page, Reply)

    def answer(served: StandIn, _: Request) -> Answer:
        return trouble if served.count(path) < times else page

    web.add(path, answer)


def _json(data: object, indent: int | None = None) -> bytes:
    return json.dumps(data, ensure_ascii=False, indent=indent).encode()


def _whole(text: str | None, default: int) -> int:
    try:
        return int(text) if text is not None else default
    except ValueError:
        return default


def _verified(_: StandIn, request: Request) -> Answer:
    asked = query(request)
    page = _whole(asked.get("pagination[page]"), 1)
    size = _whole(asked.get("pagination[pageSize]"), n8n.PAGE)
    return Reply(_json(n8n.answer(page, size)), content_type=JSON, etag=True)


def _search(web: StandIn, request: Request) -> Answer:
    asked = query(request)
    found = npm.answer(
        asked.get("text", ""),
        _whole(asked.get("size"), 20),
        _whole(asked.get("from"), 0),
        web.url("/npm"),
        loop=request.path.startswith("/npm-loop/"),
    )
    return Reply(_json(found), content_type=JSON)
