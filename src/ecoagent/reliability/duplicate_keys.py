"""What two tools are compared by: names, service, verb and object, read from a record once.

The word lists are closed and general; no service is named in them but the large houses whose
name alone says nothing of the service. A word in none of the lists is taken for a service's name.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from ecoagent.schema import ToolRecord, fold_space, normalize_query

FIRST_WORDS = 24
"""Words of a description that may name the service; later ones are parameters and examples."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")
_PLAIN = re.compile(r"[^\W_]+")
_REPEAT = re.compile(r"~\d+$")
_BRACKETS = re.compile(r"\([^)]*\)")
_PREPOSITIONS = _words(
    """
    at by for from in of on to with
    """
)

HOUSES = _words(
    """
    adobe amazon apple aws azure cisco facebook google ibm meta microsoft oracle sap
    """
)
"""Umbrella names: sharing one is no sign of sharing a service."""

_VERBS: dict[str, str] = {
    word: verb
    for verb, words in {
        "get": "get read reader fetch fetcher retrieve load download downloader lookup return returns",
        "list": "list getall getmany",
        "create": "create add insert new append",
        "update": "update edit modify change rename",
        "upsert": "upsert",
        "delete": "delete remove",
        "clear": "clear",
        "send": "send post publish",
        "search": "search find searching",
        "run": "run execute exec invoke dispatch",
        "query": "query",
        "write": "write writer upload",
        "scrape": "scrape scraping scraper unlocker",
        "extract": "extract extractor",
        "wait": "wait sleep",
        "navigate": "navigate goto",
        "generate": "generate",
        "analyze": "analyze analyse analysis",
        "answer": "answer",
        "ask": "ask",
        "check": "check checker validate verify",
        "copy": "copy duplicate",
        "move": "move",
        "reply": "reply",
        "schedule": "schedule",
        "cancel": "cancel",
        "close": "close",
        "open": "open reopen",
        "lock": "lock",
        "unlock": "unlock",
        "archive": "archive",
        "unarchive": "unarchive restore",
        "share": "share",
        "merge": "merge",
        "invite": "invite",
        "join": "join",
        "leave": "leave",
        "enable": "enable activate",
        "disable": "disable deactivate",
        "start": "start",
        "stop": "stop",
        "click": "click",
        "fill": "fill",
        "crawl": "crawl",
        "map": "map",
        "parse": "parse parser parsing",
        "convert": "convert",
        "translate": "translate",
        "transcribe": "transcribe",
        "summarize": "summarize",
        "classify": "classify",
        "research": "research",
        "rerank": "rerank",
        "sign": "sign",
        "patch": "patch",
        "put": "put",
        "subscribe": "subscribe",
        "unsubscribe": "unsubscribe",
        "count": "count",
        "export": "export",
        "import": "import",
        "set": "set",
    }.items()
    for word in words.split()
}
_ALIKE = frozenset(
    map(
        frozenset,
        [("list", "search"), ("get", "extract"), ("get", "scrape"), ("query", "run"), ("query", "search")],
    )
)
"""Verbs of which one may stand for the other: lists take filters, readers scrape."""

QUALIFIERS = _words(
    """
    answer assignee attribute audio batch check count diff draft history image instant job latest legacy
    news patch permission photo reply research scheduled scholar screenshot shopping status sticker
    thread video wait
    """
)
"""Words that, said of one tool only, make it another tool."""

_FILLERS = _words(
    """
    a advanced agent ai all an and any api apis app are as at available base based be by client cloud
    cog cognitive cogs com community content contents crew crewai current currently custom data default
    detail details entry existing for from full given id ids in index info information integration
    internet into io is it its json key langchain llama llamaindex llm main many multiple my n n8n named
    new node nodes object of official on one online or package packages pkg per prs record result results s
    sdk service services simple single site spec specific standard that the this to tool toolkit
    toolkits tools trigger use using v value values via web website with wrapper your
    """
)
_NOUNS = _words(
    """
    account action address airport alert analytics answer article asset attachment audience audio
    automation balance basic blog board book branch browser bucket business calendar call campaign
    caption card case cash cell channel channels chat code collection column command comment commit
    company contact context converter credential crm csv customer database dataset date datetime db deal
    description detection directory disk doc docs document docx draft drive element email embedding
    engine evaluator event excel extractor feed field file finance financial flight flow folder forecast
    form function functions game general generation geocode graph graphics group health hotel html http
    hub human hyperlink identity image income index input intelligence invoice invoke issue item
    javascript job key knowledge label lambda lead library link list load loader local location log mail
    management manager manifest map markdown market mdx media member memory message metadata mode model
    moderation movie music news note notification number object observable ocr office order output page
    paper parser patient payment pdf people person phone photo place planner platform poi pois post
    presentation price product project prompt property pull python query question queue quote range raw
    recognizer release reminder repo repository request requests research response rest results review
    role row rss sandbox schema scholar scholarly screenshot script search searches searching semantic
    session sheet shell shopping slide sms song source sources space speech spreadsheet sql state
    statement status step stock storage store story subscriber survey table tag task tasks team terminal
    text thread ticket time token topic trend txt url urls user users vector video vision voice weather
    web webhook webpage website wiki wikis word workflow write xml yaml
    """
)
_HOUSE = {"amazon": "aws", "azure": "microsoft"}
_FORMS = _words(
    """
    audio csv docx html image markdown pdf speech sql text video xml
    """
)
_SAME_WORD = {
    "news": "news",
    "analytics": "analytics",
    "email": "message",
    "mail": "message",
    "webpage": "page",
    "directory": "folder",
    "picture": "image",
    "pr": "pull",
    "repo": "repository",
    "doc": "document",
    "db": "database",
}


@dataclass(frozen=True, slots=True)
class ToolKey:
    """What one tool is compared by.

    Attributes:
        id: the tool's id.
        name: plain form of the name shown.
        description: first 16 hex digits of the SHA-256 of the normalised description.
        package: artifact it comes from, an n8n package for a node.
        node: node it is an operation of, or is; empty outside n8n.
        operation: resource and operation within the node, without the mark of a repetition.
        whole: whether it stands for two or more operations.
        trigger: whether it starts a workflow.
        verb: class of the first verb of the name; empty where there is none.
        objects: what the verb acts on, singular, sorted.
        service: words taken for the service's name, sorted.
        houses: umbrella names, sorted.
        area: general words of the group's name (calendar, task), sorted.
        words: words taken for names in the tool's name and first words, sorted.
    """

    id: str
    name: str
    description: str
    package: str
    node: str
    operation: str
    whole: bool
    trigger: bool
    verb: str
    objects: tuple[str, ...]
    service: tuple[str, ...]
    houses: tuple[str, ...]
    area: tuple[str, ...]
    words: tuple[str, ...]


def key_of(record: ToolRecord) -> ToolKey:
    """The key of a record."""
    shown = record.display_name or record.name
    node, operation = _place(record)
    group = _group_words(record, node)
    named = set(group)
    service = frozenset(w for w in named if _is_name(w))
    houses = {_HOUSE.get(w, w) for w in named & HOUSES}
    whole = len(record.operations) > 1
    verb, objects = ("", set[str]()) if whole else _verb_and_objects(shown, operation, named)
    later = _PLAIN.findall(record.description)[1:FIRST_WORDS]
    words = {w for w in [*_snake(shown), *(w.lower() for w in later if not w.islower())] if _is_name(w)}
    return ToolKey(
        id=record.id,
        name=plain_name(shown),
        description=hashlib.sha256(normalize_query(record.description).encode()).hexdigest()[:16],
        package=record.provenance.artifact,
        node=node,
        operation=operation,
        whole=whole,
        trigger=bool(record.trigger) or record.kind == "trigger",
        verb=verb,
        objects=tuple(sorted(objects)),
        service=tuple(sorted(service)),
        houses=tuple(sorted(houses)),
        area=tuple(sorted(w for w in map(_one, named) if w in _NOUNS and (w not in _VERBS or w == "search"))),
        words=tuple(sorted(words | service)),
    )


def text_of_key(record: ToolRecord) -> str:
    """The text whose vector is compared: group, name and description."""
    name, group = fold_space(record.display_name or record.name), fold_space(record.group_name or "")
    shown = f"{group}: {name}" if group and group.lower() not in name.lower() else name
    return f"{shown}. {fold_space(record.description)}"


def plain_name(name: str) -> str:
    """A name in the normal form of queries, underscores as blanks."""
    return normalize_query(name.replace("_", " "))


def verbs_agree(a: str, b: str) -> bool:
    """Whether two classes of verbs may mean one operation; an unknown verb agrees with each."""
    return not a or not b or a == b or frozenset({a, b}) in _ALIKE


def _place(record: ToolRecord) -> tuple[str, str]:
    if not record.source.startswith("n8n"):
        return "", ""
    node, _, operation = record.id.partition(f"{record.provenance.artifact}.")[2].partition("/")
    return node, _REPEAT.sub("", operation)


def _group_words(record: ToolRecord, node: str) -> list[str]:
    """Words of the group's name, with joined neighbours: ``duck duck go`` is also ``duckduckgo``.

    Parts of words written together are no names of their own: "GitHub" and "GitLab" share no "git".
    """
    label = record.group_name or (record.display_name if node else None) or ""
    texts = [label, record.provenance.artifact]
    if not node:
        path = record.group_id.partition(":")[0 if "." in record.group_id else 2]
        texts += [part for part in path.split(".")[1:] if part.islower()]
    listed = [_snake(text) for text in texts]
    return [w for words in listed for w in [*words, *_joined(words)]]


def _verb_and_objects(shown: str, operation: str, group: set[str]) -> tuple[str, set[str]]:
    """First verb of a name, and the other words; the group's own name is left out."""
    words = _without(_lower(_BRACKETS.sub(" ", shown)), group)
    if words and words[0] == "comment":
        words.insert(0, "create")
    at = next((i for i, w in enumerate(words) if w in _VERBS), -1)
    verb = _VERBS[words[at]] if at >= 0 else ""
    head = list(takewhile(lambda w: w not in _PREPOSITIONS, words[at + 1 :]))
    if verb == "get" and ({"all", "many"} & set(head) or (head and _one(head[-1]) != head[-1] != "news")):
        verb = "list"
    rest = [*words[: max(at, 0)], *words[at + 1 :], *_lower(operation.partition(".")[0])]
    objects = {_VERBS.get(w, _one(w)) for w in rest if w not in _FILLERS and not w.isdigit()} - {
        verb,
        "",
        "open",
    }
    ways = {
        f"{a}>{b}"
        for a, to, b in zip(words, words[1:], words[2:], strict=False)
        if to in ("to", "2") and {a, b} <= _FORMS
    }
    return verb, (objects - _FILLERS) | ways


def _without(words: list[str], group: set[str]) -> list[str]:
    """The words less each run that, written together, is a name in the group."""
    kept, at = [], 0
    while at < len(words):
        sizes = (
            n
            for n in (3, 2, 1)
            if at + n <= len(words) and _is_name(j := "".join(words[at : at + n])) and j in group
        )
        size = next(sizes, 0)
        if not size and words[at] not in group & HOUSES:
            kept.append(words[at])
        at += size or 1
    return kept


def _snake(text: str) -> list[str]:
    return [w.lower() for w in _PLAIN.findall(text)]


def _lower(text: str) -> list[str]:
    return [w.lower() for w in _WORD.findall(text.replace("_", " "))]


_KNOWN = _FILLERS | HOUSES | _NOUNS | _VERBS.keys()


def _joined(words: list[str]) -> list[str]:
    runs = [words[i : i + n] for n in (2, 3) for i in range(len(words) - n + 1)]
    return ["".join(run) for run in runs if _KNOWN.isdisjoint(run)]


@lru_cache(maxsize=65536)
def _one(word: str) -> str:
    if word in _SAME_WORD:
        return _SAME_WORD[word]
    if len(word) > 3 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 4 and word.endswith(("sses", "ches", "xes")):
        word = word[:-2]
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return _SAME_WORD.get(word, word)


def _is_name(word: str) -> bool:
    one = _one(word)
    return (
        (len(word) > 2 or not word.isalpha())
        and not word.isdigit()
        and not {word, one} & (_FILLERS | _NOUNS | HOUSES)
        and not {word, one} & _VERBS.keys()
    )
