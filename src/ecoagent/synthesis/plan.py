"""Which tools get queries, and what the generator is told of each."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import TypeVar

from ecoagent.llm import GenerationRequest, Sampling, take_turns
from ecoagent.prompts import RenderedPrompt, render
from ecoagent.schema import NormalizedTool, ToolRecord, catalog_of, fold_space
from ecoagent.settings import SynthesisSettings

MAX_DESCRIPTION = 300
"""Characters of a description that go into a prompt: prompts are paid for by the token, on a CPU dearly."""
MAX_OPERATIONS = 8
MAX_PARAMETERS = 8
MAX_NAME = 32
"""Characters of a parameter's name; longer ones are a form's plumbing."""
MAX_SIBLINGS = 24
TOKENS_PER_LINE = 40
"""Room per line asked for; a generated line takes about 20 tokens."""

AnyTool = TypeVar("AnyTool", bound=ToolRecord)

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_PACKAGE = re.compile(r"^(?:@[\w.-]+/)?(?:n8n-nodes-|llama-index-tools-|langchain-)")
_KIND_WORDS = re.compile(r"\s+(?:tool ?spec|spec|toolkit|tools?)$", re.IGNORECASE)
_BRAND_TAIL = re.compile(r"(?<=[a-z]) (Lab|Hub|Seek|DB|Tube|Up|AI|Bot|In)\b")
_FOR_AGENTS = re.compile(
    r"^(?:(?:the |your )?(?:tool )?inputs?\b|(?:very )?important\b|(?:the )?outputs?\b|do not use\b"
    r"|you must\b|simply pass\b|to use this tool\b|please use this sparingly)",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s*(?=[A-Z])|\n+")
_PLUMBING = frozenset(
    {"operation", "resource", "options", "additionalFields", "kwargs", "args", "self", "limit", "page_number"}
)
_MARKUP = re.compile(r"\*\*|`+|^#+\s*", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


@dataclass(frozen=True)
class ToolFacts:
    """What a prompt says of a tool, and the names of its siblings.

    Siblings stand in no prompt: a small model writes about whatever tool is named to it, "not meant
    here" or not. A line that names one is rejected instead.
    """

    name: str
    group: str | None
    description: str
    operations: tuple[str, ...]
    parameters: tuple[str, ...]
    siblings: tuple[str, ...]


@dataclass(frozen=True)
class Ask:
    """One request to the generator: ``count`` lines of one intent for one tool."""

    tool_id: str
    intent: str
    attempt: int
    count: int

    @property
    def id(self) -> str:
        """Readable id: tool, intent and attempt."""
        return f"{self.tool_id}|{self.intent}.{self.attempt}"


def seed_of(*parts: object) -> int:
    """A 31-bit seed from whatever names a random choice; equal on every machine."""
    return int(hashlib.sha256(":".join(map(str, parts)).encode()).hexdigest()[:8], 16) & 0x7FFFFFFF


def hash_rank(seed: int, what: str, identifier: str) -> str:
    """Sort key that shuffles ids; a new id moves no other."""
    key = f"{seed}:{what}:{identifier}" if what else f"{seed}:{identifier}"
    return hashlib.sha256(key.encode()).hexdigest()


def eligible(tool: NormalizedTool) -> bool:
    """Whether queries can be written for a tool: it has a description, and none in another language."""
    return bool(tool.description.strip()) and tool.language in (None, "en")


def choose_tools(
    tools: Sequence[NormalizedTool], settings: SynthesisSettings, *, seed: int, limit: int | None = None
) -> list[str]:
    """Ids of the tools that get queries, sorted.

    A duplicate group is represented once, by its smallest eligible id. Where only some tools of a
    catalog are wanted they are those of lowest hash, so that one new tool displaces at most one.

    Args:
        tools: kept tools.
        settings: ``tools_per_catalog`` is read.
        seed: the run's seed.
        limit: at most this many tools per catalog.
    """
    represented: dict[str, NormalizedTool] = {}
    for tool in sorted(filter(eligible, tools), key=lambda t: t.id):
        represented.setdefault(tool.duplicate_group, tool)
    by_catalog: defaultdict[str, list[str]] = defaultdict(list)
    for tool in represented.values():
        by_catalog[catalog_of(tool.source)].append(tool.id)
    sizes = [n for n in (settings.tools_per_catalog, limit) if n is not None]
    chosen: list[str] = []
    for ids in by_catalog.values():
        ranked = sorted(ids, key=lambda i: hash_rank(seed, "", i))
        chosen += ranked[: min(sizes)] if sizes else ranked
    return sorted(chosen)


def live_tools(sources: Mapping[str, str], per_catalog: int, *, seed: int) -> frozenset[str]:
    """Tools generated anew whatever responses are published: those of lowest hash of each catalog.

    Args:
        sources: source by id of the chosen tools.
        per_catalog: how many.
        seed: the run's seed.
    """
    by_catalog: defaultdict[str, list[str]] = defaultdict(list)
    for tool_id, source in sources.items():
        by_catalog[catalog_of(source)].append(tool_id)
    return frozenset(
        tool_id
        for ids in by_catalog.values()
        for tool_id in sorted(ids, key=lambda i: hash_rank(seed, "live", i))[:per_catalog]
    )


def humanize(name: str) -> str:
    """``open_weather_map`` and ``YahooFinanceToolSpec`` in words; a name with blanks stays as it is.

    Brands written in one word with a capital inside, such as GitLab, stay one word.
    """
    text = _PACKAGE.sub("", name.strip())
    if " " in text:
        return fold_space(text)
    text = _BRAND_TAIL.sub(r"\1", fold_space(_CAMEL.sub(" ", re.sub(r"[_.\-/]+", " ", text))))
    return _KIND_WORDS.sub("", text) or text


def brief(description: str, limit: int = MAX_DESCRIPTION) -> str:
    """A description without markup and orders to an agent, cut at the end of a sentence or word."""
    plain = _MARKUP.sub("", _LINK.sub(r"\1", description))
    sentences = [s for s in _SENTENCE.split(plain) if s.strip()]
    text = fold_space(" ".join(s for s in sentences if not _FOR_AGENTS.match(s.strip())) or plain)
    if len(text) <= limit:
        return text
    cut = text[:limit]
    end = max(cut.rfind(". "), cut.rfind("! "), cut.rfind("; "))
    return cut[: end + 1] if end > limit // 3 else cut[: cut.rfind(" ")] + " …"


def facts_of(tool: ToolRecord, siblings: Sequence[ToolRecord] = ()) -> ToolFacts:
    """What the generator is told: without the group "Create File" would not be GitHub's.

    Args:
        tool: the tool.
        siblings: other tools of its group; their names show what a line must not be about.
    """
    name = humanize(_own_name(tool))
    group = humanize(tool.group_name or tool.group_id)
    plain = group.lower().replace(" ", "")
    known = plain in name.lower().replace(" ", "") or set(group.lower().split()) <= set(name.lower().split())
    operations = _varied_operations(tool)
    parameters = tuple(p for p in tool.parameter_names if p not in _PLUMBING and len(p) <= MAX_NAME)
    names = [humanize(_own_name(s)) for s in sorted(siblings, key=lambda s: s.id) if s.id != tool.id]
    return ToolFacts(
        name,
        None if known else group,
        brief(tool.description),
        operations,
        () if operations else parameters[:MAX_PARAMETERS],
        tuple(n for n in dict.fromkeys(names) if n != name)[:MAX_SIBLINGS],
    )


def _varied_operations(tool: ToolRecord) -> tuple[str, ...]:
    """Some operations, from as many resources as there are: the first of each, then the second …"""
    by_resource: defaultdict[str, list[str]] = defaultdict(list)
    for op in tool.operations:
        label = fold_space(op.name or op.operation)
        resource = humanize(op.resource or "").lower()
        # "Replicate cart" says already that it is about carts.
        if resource.removesuffix("s") not in label.lower():
            label = f"{label} ({resource})"
        by_resource[resource].append(label)
    rounds = [label for labels in zip_longest(*by_resource.values()) for label in labels if label]
    return tuple(dict.fromkeys(rounds))[:MAX_OPERATIONS]


def _own_name(tool: ToolRecord) -> str:
    shown = tool.display_name or tool.name
    # "Spec.function": the function is the tool, the spec is its group.
    return shown.rsplit(".", 1)[-1] if tool.source == "llamaindex" else shown


def by_group(tools: Iterable[AnyTool]) -> dict[str, list[AnyTool]]:
    """The tools of each group, in the order given: a tool's siblings are the others of its group."""
    groups: defaultdict[str, list[AnyTool]] = defaultdict(list)
    for tool in tools:
        groups[tool.group_id].append(tool)
    return dict(groups)


def first_asks(tool_ids: Sequence[str], settings: SynthesisSettings) -> list[Ask]:
    """The first round: every intent of every tool, ``queries_per_tool`` lines over the intents.

    Tools take turns intent by intent, see ``take_turns``.
    """
    counts = list(zip(settings.intents, lines_per_intent(settings), strict=True))
    return take_turns([[Ask(tool_id, i, 0, count) for i, count in counts] for tool_id in tool_ids])


def lines_per_intent(settings: SynthesisSettings) -> list[int]:
    """``queries_per_tool`` split over the intents, the first ones taking what is left over."""
    whole, rest = divmod(settings.queries_per_tool, len(settings.intents))
    return [max(1, whole + (place < rest)) for place in range(len(settings.intents))]


def retry_asks(
    tool_id: str, accepted: dict[str, int], attempt: int, settings: SynthesisSettings
) -> list[Ask]:
    """Another round for a tool that is short: as many intents as the lines lacking need.

    Args:
        tool_id: the tool.
        accepted: lines accepted so far by intent.
        attempt: number of this round, from 1.
        settings: ``min_queries_per_tool`` and the intents are read.
    """
    lacking = settings.min_queries_per_tool - sum(accepted.values())
    counts = dict(zip(settings.intents, lines_per_intent(settings), strict=True))
    order = sorted(settings.intents, key=lambda i: (accepted.get(i, 0), settings.intents.index(i)))
    asks = []
    for intent in order:
        if lacking <= 0:
            break
        asks.append(Ask(tool_id, intent, attempt, counts[intent]))
        lacking -= counts[intent]
    return asks


def prompt_of(ask: Ask, facts: ToolFacts) -> RenderedPrompt:
    """The filled-in prompt of a request."""
    shown = asdict(facts)
    del shown["siblings"]
    return render(f"synthesize_{ask.intent}", count=ask.count, **shown)


def request_of(
    ask: Ask, facts: ToolFacts, settings: SynthesisSettings, *, seed: int, live: bool = False
) -> GenerationRequest:
    """The request itself; its seed depends on tool, intent and attempt only."""
    prompt = prompt_of(ask, facts)
    sampling = Sampling(
        temperature=settings.temperature,
        top_p=settings.top_p,
        max_tokens=min(settings.max_tokens, TOKENS_PER_LINE * (ask.count + 1)),
        seed=seed_of(seed, ask.tool_id, ask.intent, ask.attempt),
    )
    return GenerationRequest(
        id=ask.id, messages=prompt.messages, sampling=sampling, prompt_sha256=prompt.sha256, live=live
    )
