"""What a documentation page says of its tool: description, imports, environment, deprecation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ecoagent.crawlers.lock import LockEntry
from ecoagent.crawlers.pyfacts import SECRET
from ecoagent.crawlers.records import NOT_DEPRECATED, candidate, in_order, provenance, words
from ecoagent.crawlers.web.content import Block
from ecoagent.crawlers.web.documents import Document, slug
from ecoagent.schema import Auth, AuthField, Candidate, Deprecation, ToolRecord
from ecoagent.schema.tools import Granularity

_IMPORT = re.compile(r"^[ \t>]*from\s+([A-Za-z_][\w.]*)\s+import\s+(\([^()]{0,4000}\)|[^\n]+)", re.MULTILINE)
_ENV = re.compile(
    r"(?:os\.)?environ(?:\.get\(|\.setdefault\(|\[)\s*['\"](?P<read>[A-Z][A-Z0-9_]{2,})['\"]\s*(?P<close>[\])])?"
    r"(?P<set>\s*=(?!=))?|(?:os\.)?getenv\(\s*['\"](?P<got>[A-Z][A-Z0-9_]{2,})['\"]|"
    r"(?:^|\n)[ \t]*(?:export|set|%env)[ \t]+(?P<shell>[A-Z][A-Z0-9_]{2,})\s*=?"
)
_NOT_THE_TOOLS = re.compile(r"^(LANGSMITH|LANGCHAIN|LANGGRAPH)_|^(PATH|HOME|PYTHONPATH|USER|DEBUG)$")
_MODEL_KEY = re.compile(r"^(AZURE_)?(OPENAI|ANTHROPIC|GROQ|MISTRAL|FIREWORKS|COHERE|TOGETHER)_")
_INSTALL = re.compile(r"(?:pip3?|uv|poetry)\s+(?:pip\s+)?(?:install|add)\s+([^\n&|;#]+)", re.IGNORECASE)
_REQUIREMENT = re.compile(r"^['\"]?([A-Za-z0-9][\w.-]*)(?:\[[\w,\s-]*\])?(?:[=<>~!]=?[^'\"]*)?['\"]?$")
_SECTION_LEFT_OUT = re.compile(
    r"^\W*(set ?up|install|credential|prerequisit|requirement|usage|use|using|example|quick ?start|"
    r"parameter|argument|configur|instantiat|invo[ck]|getting started|get started|steps|agent|chain|"
    r"authenticat|environment|api reference|reference|related|resources|next steps|see also|error|"
    r"troubleshoot|how to|import|what is next|pricing)",
    re.IGNORECASE,
)
_PREPARES = re.compile(
    r"\s*(#|$|[!%]?\s*(pip3?|uv|poetry|npm|python\d? -m pip)\b|%?(export|set|env)\b)", re.IGNORECASE
)
"""A line of code that installs or sets variables: such code may come before the text on the tool."""
_FEWEST_WORDS = 4
_SENTENCE_END = re.compile(r"(?<=[a-z0-9)][.!?])\s+(?=[A-Z])")
_DESCRIPTION = re.compile(r"^\W*(description|what it does|purpose)\b", re.IGNORECASE)
_NOT_A_DESCRIPTION = re.compile(
    r"^(in )?(this|these|the|below|here)\s+([\w-]+\s+){0,2}(notebook|guide|page|tutorial|document|section|"
    r"example|table|quickstart|walkthrough)s?\b|"
    r"\b(head|refer|go) to the\b.{0,40}\b(reference|docs|documentation)\b|"
    r"^you are (currently )?on a page|^(you|we)('ll|\W+will)?\s+(also\s+)?(need|can|must|have to)\b|"
    r"^(to|in order to) (use|access|get|install|enable|run|start|begin|set|create|incorporate|effectively)\b|"
    r"^(first|next|then|now|before|once|make sure|ensure|go to|install|see|check|head|refer|visit|follow|"
    r"sign up|get started|if you)\b|llms\.txt|documentation index|"
    r"^(we are|we're) still working on|lives? in the .{0,60} package|"
    r"^for (all|detailed|more|complete|a detailed)|^note\b|"
    r"^(still )?experimental$|^(home|docs|back|previous|next)\b.{0,20}[›»>/]|^(copyright|©)|"
    r"^integrate with (the )?.{1,60} using langchain|page not found|^(last )?(updated|modified|edited)\b|"
    r"^\W*(note|tip|warning|alternatively|finally|please|by default|in the (below|following|example)|"
    r"here (we|you|is)|we (provide|show|will|use)|let's|this will (help|show)|learn how|click)\b|"
    r"^['\"\[{<]|^https?:",
    re.IGNORECASE,
)
_DEPRECATED = re.compile(
    r"\b(is|are|has been|have been|was|were|now|been)\s+(?:now\s+|officially\s+)?deprecated\b|"
    r"^\W*deprecat(ed|ion)\b|no longer (supported|maintained|available)|"
    r"\bdeprecated\b.{0,40}\b(will be removed|use|in favou?r)\b",
    re.IGNORECASE,
)
_WHOLE = re.compile(
    r"^\W*((warning|note|important)\W+)?(deprecat|"
    r"(this|the) [^.]{0,40}\b(tool|toolkit|package|class|page|integration)\b)",
    re.IGNORECASE,
)
"""A notice that is about the whole of the tool, wherever it stands."""
_INSTEAD = re.compile(
    r"\b(?:use|see|try)\s+(?:the\s+)?(?:new\s+)?([^.;:!?]{2,60}?)\s+instead\b|"
    r"(?:in favou?r of|replaced (?:by|with)|superseded by|migrate to|instead,? use|please use|moved to)\s+"
    r"(?:the\s+)?(?:new\s+)?([^.,;:!?()]{2,60})",
    re.IGNORECASE,
)


def description_of(page: Sequence[Block]) -> str:
    """The first real paragraph of a page; empty if it has none.

    It stands before the first code and the first section on setup or use; after those, sentences
    are on steps and options. Notices, navigation and sentences about the page itself say nothing of
    what the tool does. A section headed "Description" comes first, wherever it stands.
    """
    first = ""
    open_, described = True, False
    for block in page:
        if block.kind == "heading":
            described = bool(_DESCRIPTION.match(block.text))
            open_ = open_ and not _SECTION_LEFT_OUT.match(block.text)
        elif block.kind == "code" and not all(_PREPARES.match(t) for t in block.text.splitlines()):
            open_ = described = False
        elif block.kind == "paragraph" and (open_ or described) and (told := prose_of(block)):
            if described:
                return told
            first = first or told
    return first


def lead_of(page: Iterable[Block]) -> str:
    """The line below the title, unless it only names the page."""
    return next((told for b in page if b.kind == "lead" and (told := prose_of(b))), "")


def prose_of(block: Block) -> str:
    """What a paragraph says of its subject; empty for a badge, a link alone or a stage direction.

    Sentences about the page itself at a paragraph's start are left out, the rest stands as written.
    """
    linked = sum(len(link.text) for link in block.links)
    if linked >= 0.8 * len(block.text) or block.text.endswith(":"):
        return ""
    sentences = _SENTENCE_END.split(block.text)
    while sentences and (_NOT_A_DESCRIPTION.search(sentences[0]) or _DEPRECATED.match(sentences[0])):
        sentences.pop(0)
    text = " ".join(sentences)
    return text if len(text.split()) >= _FEWEST_WORDS else ""


def title_of(page: Iterable[Block]) -> str:
    """The page's title."""
    return next((b.text for b in page if b.kind == "title"), "")


def imports(page: Iterable[Block]) -> list[tuple[str, str]]:
    """Module and name of every ``from … import …`` in the page's code, in reading order."""
    found: list[tuple[str, str]] = []
    for block in page:
        if block.kind != "code":
            continue
        for module, names in _IMPORT.findall(block.text):
            bare = re.sub(r"#[^\n]*", "", names).strip("() \t\n")
            for name in re.split(r"[,\s]+(?:as\s+\w+)?", re.sub(r"\s+as\s+\w+", "", bare)):
                if re.fullmatch(r"[A-Za-z_]\w*", name):
                    found.append((module, name))
    return found


def installed(page: Iterable[Block]) -> list[str]:
    """Packages that the page's code installs, in reading order."""
    found: list[str] = []
    for block in page:
        if block.kind != "code":
            continue
        for line in _INSTALL.findall(block.text):
            for part in line.split():
                match = _REQUIREMENT.match(part)
                if match and not part.startswith("-"):
                    found.append(match.group(1))
    return found


def env_auth_of(page: Iterable[Block]) -> list[Auth]:
    """Environment variables that the page's code sets or reads, sorted.

    A variable the page sets is required; of one it only reads that is not said. Keys of the model
    in an example with an agent are left out where the tool has variables of its own.
    """
    names: dict[str, bool | None] = {}
    section = ""
    for block in page:
        if block.kind == "heading":
            section = block.text
        if block.kind != "code":
            continue
        with_agent = bool(re.search(r"\b(agent|chain|langgraph)", section, re.IGNORECASE))
        for match in _ENV.finditer(block.text):
            name = match.group("read") or match.group("got") or match.group("shell")
            if _NOT_THE_TOOLS.search(name) or (with_agent and _MODEL_KEY.match(name)):
                continue
            given = bool(match.group("shell") or (match.group("read") and match.group("set")))
            names[name] = True if given else names.get(name)
    own = {n: r for n, r in names.items() if not _MODEL_KEY.match(n)}
    names = own or names
    return [
        Auth(
            type="env",
            name=name,
            fields=[AuthField(name=name, secret=bool(SECRET.search(name)), required=names[name] is True)],
            required=names[name],
            origin="docs",
        )
        for name in sorted(names)
    ]


def auth_required(auth: Sequence[Auth]) -> Any:
    """yes if one entry is required, no if all are optional, else unknown."""
    if any(a.required is True for a in auth):
        return "yes"
    return "no" if auth and all(a.required is False for a in auth) else "unknown"


def deprecation_of(page: Sequence[Block], title: str = "") -> Deprecation:
    """Deprecation by a notice, the title or a paragraph before the first section on use."""
    if re.search(r"\bdeprecated\b", title, re.IGNORECASE):
        return Deprecation(state=True, reason=title)
    section = ""
    for block in page:
        if block.kind == "heading":
            section = block.text
        early = not section or not _SECTION_LEFT_OUT.match(section)
        told = block.kind in ("notice", "paragraph", "lead") and _DEPRECATED.search(block.text)
        if told and (early or (block.kind == "notice" and _WHOLE.match(block.text))):
            found = _INSTEAD.search(block.text)
            instead = next((g.strip(" `'\"“”") for g in found.groups() if g), None) if found else None
            return Deprecation(state=True, reason=block.text, replacement=instead)
    return Deprecation(**NOT_DEPRECATED)


def documented(entry: LockEntry, page: Document | None, url: str, facts: Mapping[str, Any]) -> ToolRecord:
    """A record of what documentation says; ``facts`` override what is not known otherwise."""
    values: dict[str, Any] = {
        "source": entry.source,
        "description_origin": "docs" if facts.get("description") else "none",
        "granularity": "tool",
        "url": url,
        "docs_url": url,
        "auth_required": auth_required(facts.get("auth") or []),
        "deprecated": NOT_DEPRECATED,
        "licence": entry.licence,
        "provenance": provenance(entry, page.url if page is not None else url),
    }
    return ToolRecord(**(values | dict(facts)))


def dead_page(entry: LockEntry, page: Document) -> Candidate:
    """The reject that stands for a page that could not be had."""
    name = slug(page.url)
    catalog = "n8n" if entry.source.startswith("n8n") else entry.source
    facts = {
        "id": f"{catalog}:docs#{name}",
        "name": name,
        "description": "",
        "kind": "documented_tool",
        "group_id": f"docs#{name}",
    }
    return candidate(documented(entry, page, page.url, facts), "dead_page", page.reason)


def settle(
    found: Iterable[Candidate], entry: LockEntry, granularity: Granularity, package: str | None = None
) -> list[Candidate]:
    """Candidates of one snapshot in order, each kept id once; by package where that is asked.

    Args:
        found: candidates of single tools.
        entry: the snapshot.
        granularity: ``package`` puts the tools of one package together.
        package: the package of all of them, where there is just one.
    """
    listed = list(_once(in_order(found)))
    if granularity != "package":
        return in_order(listed)
    groups: dict[str, list[Candidate]] = {}
    for one in listed:
        if one.status == "kept":
            groups.setdefault(package or one.record.group_id, []).append(one)
    rejected = [c for c in listed if c.status != "kept"]
    return in_order([*(_package(name, groups[name], entry) for name in sorted(groups)), *rejected])


def _once(found: Iterable[Candidate]) -> Iterator[Candidate]:
    first: dict[str, str] = {}
    for one in found:
        where = one.record.docs_url or one.record.provenance.path
        if one.status == "kept" and one.record.id in first:
            yield candidate(one.record, "duplicate", f"also at {first[one.record.id]}")
            continue
        if one.status == "kept":
            first[one.record.id] = where
        yield one


def _package(name: str, tools: list[Candidate], entry: LockEntry) -> Candidate:
    """One record for a package: documentation has a text for it only where it has a single tool."""
    records = [t.record for t in tools]
    auth = {a.name: a for r in records for a in r.auth}
    single = records[0] if len(records) == 1 else None
    record = records[0].model_copy(
        update={
            "id": f"{entry.source}:{name}",
            "name": name,
            "display_name": words(name),
            "description": single.description if single else "",
            "description_origin": single.description_origin if single else "none",
            "kind": "package",
            "granularity": "package",
            "group_id": name,
            "group_name": None,
            "auth": [auth[n] for n in sorted(auth)],
            "tags": sorted({t for r in records for t in r.tags}),
            "parameter_names": [],
            "input_schema": None,
            "schema_origin": None,
            "operations": [],
        }
    )
    if single is None:
        return candidate(record, "no_description", f"{len(records)} tools and no text for the package")
    return candidate(record)
