"""What the wording of a line says of it: about the tool, an answer, a report, a copy of the prompt …

Two strengths: a reason where nobody would type the line, a flag where a reasonable person might.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from ecoagent.schema import normalize_query, tokens
from ecoagent.synthesis.plan import Ask, ToolFacts, prompt_of

SAYS_TOOL = "says_tool"
"""Flag: calls the thing it asks for a tool."""
ABOUT_SETUP = "about_setup"
"""Flag: asks how to install or set up the tool, not for what it does."""
NO_REQUEST = "no_request"
"""Flag: says what is or went wrong and leaves the request unsaid."""
INTENTS = ("direct", "troubleshooting", "howto")
COPY_JACCARD = 0.6
"""Similarity from which a line counts as a copy of an example of the prompt."""
COPY_RUN = 7
"""Words in a row of an example that are a copy."""

_NAME = "Nnamen"
"""Stands for the tool's or group's name in a masked text."""
_WORD = re.compile(r"\w+")
_KIND = re.compile(r"[\s_]*(?:tool|tools|toolkit|tool ?spec)$", re.IGNORECASE)
_QUOTED = re.compile(r"\"[^\"]*\"?|“[^”]*”?|(?<!\w)'[^']*'(?!\w)|‘[^’]*’|`[^`]*`")
_HTML_TAGS = (
    "a|b|i|p|br|div|span|img|h[1-6]|ul|ol|li|table|tr|td|th|form|input|button|head|body|html|title|meta|link|script"
    "|style|nav|main|footer|header|section|article|label|select|option|iframe|video|audio|canvas|svg|code|pre|em|strong"
)
_PLACEHOLDER = re.compile(
    rf"\[(?!https?:)[A-Za-z][^\]\d\"':,]{{2,}}\](?!\()|<(?!/?(?:{_HTML_TAGS})\b)[A-Za-z][^>\d\"=/@]{{2,}}>"
    r"|\{\{?\s*[A-Za-z_][\w .-]+\}|\bXYZ\b|\byour[_-](?!self|own)\w+|\bYOUR_\w+|_{3,}|\(insert [^)]*\)",
)
_THE_TOOL = re.compile(
    r"\bthis (?:tool|plugin)\b(?! (?:shed|shop|box|bar|kit|belt))|\bthe (?:api|langchain) wrapper\b"
    r"|\b(?:use|using|with|via|through|run|call|for|of) the tool\b(?! (?:shed|shop|box|bar|kit|belt))"
    r"|\bthe tool['’]s\b"
    r"|\b(?:using|with|via|through) this (?:function|node|api)\b"
    r"|^(?:use|call|run|invoke) (?:this|the) (?:function|node|api)\b"
    r"|\b(?:ask|asking|tell|telling|prompt|prompting) the user\b"
    r"|\bthe user['’]s (?:query|request|input|question|prompt)\b",
    re.IGNORECASE,
)
_SAYS_TOOL = re.compile(r"\btools?\b", re.IGNORECASE)
_NAMED_TOOL = re.compile(r"((?:[\w.'’-]+ ){1,4})tools?\b", re.IGNORECASE)
_SHORT_WORDS = frozenset(
    {"a", "an", "the", "of", "to", "in", "for", "and", "from", "with", "on", "by", "this", "s", "tool"}
)
_THE_NAME = rf"(?:the |a )?{_NAME}(?:['’]s)?(?: (?:tool|api|service|server|platform))?"
_WHAT_IT_IS = re.compile(
    rf"^(?:what (?:is|are|['’]s)|what['’]s|(?:can|could) you (?:please )?(?:explain|describe|tell me)"
    rf"|(?:please )?(?:explain|describe)|tell me)"
    # A tool may be called "weather": asking what the weather is in Rome is no question about it.
    rf"(?:(?: the| some| any)? (?:purpose|point|main use|role|benefits?|advantages?|disadvantages?"
    rf"|limitations?"
    rf"|features?|capabilities) (?:of|for) (?:using )?{_THE_NAME}"
    rf"|(?: me)?(?: what| how)? {_NAME}(?: tool)?(?: (?:is|does|works|used for|good for))?(?: and how"
    rf" [\w ]+)?\s*[?.!]?$)"
    rf"|^(?:what|how) (?:does|do|can) {_THE_NAME} (?:do|work|offer)\s*[?.!]?$"
    rf"|^what (?:is|are) {_THE_NAME} (?:used|good) for\b"
    rf"|^what(?: is|['’]s| are) the (?:main )?(?:differences?|similarit\w+) between (?:the )?{_NAME}\b",
    re.IGNORECASE,
)
_HOW_TO_USE_IT = re.compile(
    rf"^[^.?!]*\bhow (?:to|do i|can i|should i|do you) use (?:{_THE_NAME}|(?:the |a |this )?(?:[\w-]+"
    rf" ){{0,5}}?tool)"
    rf"(?:[,?!]|\.(?!\w)|$)"
    rf"|^(?:{_THE_NAME}|(?:the )?(?:[\w-]+ ){{0,5}}?tool) (?:is|does|has) (?:not|stopped)"
    rf" work\w*\b[^.?!]{{0,40}}"
    rf"(?:[.?!,]\s*(?:how (?:do|can) i (?:troubleshoot|fix) (?:it|this)|(?:can|could) you (?:please"
    rf" )?(?:help|fix it)"
    rf"(?: me)?))?\s*[.?!]*$",
    re.IGNORECASE,
)
_ABOUT_SETUP = re.compile(
    rf"\b(?:install|set(?:ting)? up|configure|configuring|get started with|sign up for|subscribe to"
    rf"|integrate|enable)"
    rf" (?:the |a )?(?:[\w-]+ ){{0,2}}?{_NAME}|\bapi key\b.*{_NAME}|{_NAME}.*\bapi key\b"
    rf"|^what is the (?:format|syntax|process of setting up)\b.*{_NAME}",
    re.IGNORECASE,
)
_ANSWER = re.compile(
    r"^(?:yes,? (?:you|it|that|this|there|i can)\b|no, (?:you can|it|that)\b"
    r"|to (?:[\w'’-]+ ){1,12}?(?:you (?:first |simply |just )?(?:can|could|need|have|must|should"
    r"|will)\b|simply\b)"
    r"|to .{3,200}?, (?:you (?:first |simply |just )?(?:can|could|need|have|must|should|will)\b"
    r"|simply|start|use|open|first|go|click|follow|enter|type|run|call|select|navigate)\b"
    r"|try (?:using|to)\b"
    r"|i(?:['’]ll| will| can) (?:help|assist|find|show|look|get|send|give)\b[^.?!]{0,40}\byou\b"
    r"|i(?:['’]ll| will| can) (?:help|assist)\b(?! (?:my|him|her|them|out))"
    r"|it (?:allows|provides|returns) \w+|(?:step|option|answer) \d"
    r"|(?:how|what) (?:can|may) i (?:help|assist) you\b|do you want me to\b|would you like (?:me )?to\b"
    r"|here (?:is|are) your\b|thank(?:s| you) for your\b)"
    r"|^to\b[^?]*\bi(?:['’]d| would) use\b"
    # The writer has taken the assistant's part.
    r"|\bplease (?:rephrase|clarify your)\b|\byou please rephrase\b"
    r"|\bprovide (?:me with )?(?:a |an )?(?:subset|more detailed (?:instruction|query|question|prompt))\b"
    r"|\b(?:you['’]re|you are|you might be|you may be) (?:interested in|looking for)\?"
    r"|\bwhere (?:it|this) would be useful\?",
    re.IGNORECASE,
)
_SOFT_ANSWER = re.compile(
    r"^you (?:can|could|should|need|will|must|have|may)\b|^it (?:is|can|will)\b|\bplease try again\b",
    re.IGNORECASE,
)
_TRY_AGAIN = re.compile(r"(?<!can you )(?<!could you )\bplease try again\b", re.IGNORECASE)
_FIRST_PERSON = re.compile(r"\b(?:i|i['’]\w+|me|we|we['’]\w+|us)\b", re.IGNORECASE)
_OWN = re.compile(r"\b(?:my|our)\b", re.IGNORECASE)
_ORDER_TEXT = """
    add ask attach book brighten bring build buy call cancel change charge check clean clear close
    compare compute convert copy count create crop cut delete describe dispute double download draft
    edit email enter explain export extract fetch fill filter find fix forward generate get give grab
    group help increase invite invoke keep let list lock look mail make mark merge message move notify
    open order pause pay pick plan play post print publish pull push put read redo reduce refund remind
    remove rename repair replace reply report resend reset resize restart restore retry run save
    schedule search send set share show sort split start stop sum summarise summarize switch take tell
    text translate turn undo unlock update upload use warn write
"""
_ORDER = "|".join(_ORDER_TEXT.split())
_ASKS = re.compile(
    rf"(?:[,;.:–—] |\band |\bthen |\bso )(?:please |now |then |also )?(?:{_ORDER})\b(?! (?:is|are|was|by)\b)"
    r"|\?|\bplease\b|\b(?:can|could|will|would) you\b|\bhelp\b|\bi wonder\b"
    r"|\b(?:i|we)(?:['’]d| would)? (?:also |really |just |still |only )?(?:need|want|like|wish|wanna)\b"
    r"|\bi['’]?a?m (?:looking for|searching for|trying to|curious|wondering|interested|hoping)\b"
    r"|\bneeds? (?:to|a|an|the|my|it|some|you)\b",
    re.IGNORECASE,
)
_ASKS_FOR_IT = re.compile(
    rf"\b(?:{_ORDER}) (?:me|it|them|him|her|us|up|all|one|that|this|those|what|which|whether|if|know)\b",
    re.IGNORECASE,
)
_TROUBLE = re.compile(
    r"\b(?:not|no|never|cannot|nothing|none|but|although|though|instead|wrong|missing|lost|empty"
    r"|broken|stuck|blank|too|only|still"
    r"|tr(?:y|ied|ying)|unable|incomplete|invalid|unreadable|incorrect|crash\w*|froze\w*|frozen"
    r"|denied|blocked|refused|timed|timeout"
    r"|needs?|needed|wanted|forgot\w*|mistake\w*|accidentally|lag\w*|slow\w*|keeps?|kept|without"
    r"|again)\b|n['’]t\b|\bfail|\berror",
    re.IGNORECASE,
)
_STATEMENT = re.compile(r"^(?:the|a|an|this|that|these|it|there|my|our|his|her|their)\b", re.IGNORECASE)
_PRAISED = re.compile(rf"^{_NAME} (?:is|has|allows|provides|helps|offers|can)\b", re.IGNORECASE)
_DONE_TEXT = """
    sent made found got wrote put gave took built ran set read did used added created deleted updated
    searched posted shared saved uploaded scheduled booked checked looked received retrieved translated
    converted completed finished generated extracted listed moved copied opened closed downloaded
    executed replied selected submitted published invited installed fetched
"""
_REPORT = re.compile(
    r"^(?:i|we)(?:['’]ve| have)? (?:just |already |recently |successfully |then )?"
    rf"(?:{'|'.join(_DONE_TEXT.split())})\b"
    r"|^(?:to|for|in) [^,?]{3,160}, (?:i|we) (?:used|searched|looked|sent|asked|went|ran|made)\b"
    r"|^(?:my|our) (?:\w+ ){1,3}?asked (?:the|an?|his|her|their) [\w' -]+? to\b",
    re.IGNORECASE,
)
_TELLS = re.compile(r"(?:i|i['’]\w+|we|my|our|the|an?|there|this|that|it|these|when)\b", re.IGNORECASE)
_THANKS = re.compile(r"\bthank(?:s| you)\b[.!]*$", re.IGNORECASE)
_NARRATED = re.compile(
    r"^(?:the|an?|one|another) (?:[\w'’-]+ ){1,4}?(?:asked (?:(?:the|an?|his|her|their) [\w' -]+?"
    r" )?to|wanted (?:to|the)"
    r"|fell asleep|decided to|told (?:him|her|them|the)|(?:is|was) so \w+ that)\b"
    r"|^(?:the|an?) (?:[\w'’-]+ ){1,4}?(?:wants?|needs?|is (?:looking for|trying to|working"
    r" on))\b.*\b(?:she|he|his|her)\b"
    r"|^(?:he|she) (?:asked|wants?|wanted|needs?|needed|is|was|tried|decided)\b"
    r"|^the (?:ai )?(?:agent|assistant)(?:['’]s [\w ]+?)? (?:is|was|has|had|did|could|were|are|keeps"
    r"|kept|will|would"
    r"|can|went|does|fell|[a-z]+ed)\b",
    re.IGNORECASE,
)
_LEAKED = re.compile(
    r"\bmost of them mention\b|\bno two begin alike\b|\b(?:trouble|how-to) messages?\b"
    r"|^(?:what it does|belongs to|it can|its inputs|tool)\s*:|\bbegins? in another way\b|\babout"
    r" another situation\b"
    r"|\bmade-up details\b|^(?:write|here are) \d+ \w+ messages\b|\bthe person (?:asks|who needs the"
    r" result|wants one thing|tried to do)\b"
    r"|\bwords copied from\b|\bask(?:s)? for the result\b",
    re.IGNORECASE,
)
_EXAMPLE_GROUP = re.compile(r"^Belongs to: (.+)$", re.MULTILINE)


def no_query(text: str, names: Sequence[str] = ()) -> str | None:
    """Lines about the tool, answers, reports, narration, bare statements, and lines with a placeholder.

    Args:
        text: the line.
        names: what the tool and its group are called; with them, "What is <name> for?" is told from
            a question about the world, and a word such as "agent" is left to tools of that name.
    """
    if _PLACEHOLDER.search(text):
        return "placeholder"
    masked = mask_names(text, names)
    if _THE_TOOL.search(masked) or _WHAT_IT_IS.search(masked) or _HOW_TO_USE_IT.search(masked):
        return "about_the_tool"
    if re.search(r"\bthe tool\b", masked, re.IGNORECASE) and not _FIRST_PERSON.search(masked):
        return "about_the_tool"
    bare = _QUOTED.sub(' " ', text)
    claim = bool(_ASKS.search(_TRY_AGAIN.sub(" ", bare)))
    asks = claim or bool(_ASKS_FOR_IT.search(bare))
    own = bool(_FIRST_PERSON.search(bare))
    if _ANSWER.search(bare):
        return "answer"
    if _SOFT_ANSWER.search(bare) and not own and not asks:
        return "answer"
    if (_REPORT.match(bare) or _THANKS.search(bare)) and not claim and not _TROUBLE.search(bare):
        return "report"
    told = _NARRATED.match(bare) and not ({"agent", "assistant"} & _words_of(names))
    if told and not own and not asks_someone(bare) and not _OWN.search(bare):
        return "narrated"
    stated = _STATEMENT.match(bare) or _PRAISED.match(masked)
    if stated and not own and not asks and not _TROUBLE.search(text):
        return "statement"
    return None


def asks_someone(bare: str) -> bool:
    """Whether a line without its quoted parts asks a question, or says please or you."""
    return bool(re.search(r"\?|\bplease (?!try again)|\b(?:can|could|will|would) you\b", bare, re.IGNORECASE))


def wording_flags(text: str, names: Sequence[str] = ()) -> list[str]:
    """Flags that a line's wording earns, in no order."""
    masked, bare = mask_names(text, names), _QUOTED.sub(' " ', text)
    flags = []
    if _SAYS_TOOL.search(masked):
        flags.append(SAYS_TOOL)
    if _ABOUT_SETUP.search(masked):
        flags.append(ABOUT_SETUP)
    asks = _ASKS.search(bare) or _ASKS_FOR_IT.search(bare)
    if _TELLS.match(bare) and not asks:
        flags.append(NO_REQUEST)
    return flags


def names_as_tool(text: str, names: Sequence[str]) -> bool:
    """Whether a line says "the … tool" with words of the tool's or its group's name before it."""
    found = _NAMED_TOOL.findall(text.replace("_", " "))
    return any(set(_WORD.findall(f.lower())) & _words_of(names) - _SHORT_WORDS for f in found)


def mask_names(text: str, names: Sequence[str], by: str = _NAME) -> str:
    """A text with one made-up word, or ``by``, where the tool or its group is named."""
    pattern = _pattern_of(tuple(names))
    return pattern.sub(by, text) if pattern else text


@lru_cache(maxsize=1024)
def _pattern_of(names: tuple[str, ...]) -> re.Pattern[str] | None:
    """Finds any of the names, written in whatever way, longest first."""
    forms = {tuple(_WORD.findall(_KIND.sub("", n).replace("_", " "))) for n in names} - {()}
    if not forms:
        return None
    ordered = sorted(forms, key=lambda f: (-sum(map(len, f)), f))
    return re.compile(
        r"\b(?:" + "|".join(r"[\s_.'’-]*".join(map(re.escape, f)) for f in ordered) + r")\b", re.IGNORECASE
    )


@lru_cache(maxsize=1024)
def _words_of_names(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(w for n in names for w in _WORD.findall(n.replace("_", " ").lower()))


def _words_of(names: Sequence[str]) -> frozenset[str]:
    return _words_of_names(tuple(names))


def copies_prompt(text: str, known: str = "") -> bool:
    """Whether a line is near one of the prompt's examples, names a service of theirs, or repeats orders.

    Args:
        text: the line.
        known: names and description of the tool; a service that stands there is its own.
    """
    if _LEAKED.search(text):
        return True
    lines, groups, runs = _prompt_examples()
    lowered, own = normalize_query(text), normalize_query(known)
    if any(g in lowered and g not in own for g in groups):
        return True
    mine = tokens(text)
    if any(len(mine & line) >= COPY_JACCARD * len(mine | line) for line in lines):
        return True
    spelled = _WORD.findall(lowered)
    return any(tuple(spelled[i : i + COPY_RUN]) in runs for i in range(len(spelled) - COPY_RUN + 1))


@lru_cache(maxsize=1)
def _prompt_examples() -> tuple[tuple[frozenset[str], ...], tuple[str, ...], frozenset[tuple[str, ...]]]:
    """Of the prompts' examples: the words of each line, the services, the runs of words."""
    asked = [prompt_of(Ask("", i, 0, 1), ToolFacts("", None, "", (), (), ())) for i in INTENTS]
    turns = [turn for prompt in asked for turn in prompt.examples]
    lines = sorted({x for role, said in turns if role == "assistant" for x in said.splitlines() if x.strip()})
    groups = {
        g.strip().lower() for role, said in turns if role == "user" for g in _EXAMPLE_GROUP.findall(said)
    }
    runs = set()
    for line in lines:
        spelled = _WORD.findall(normalize_query(line))
        runs |= {tuple(spelled[i : i + COPY_RUN]) for i in range(len(spelled) - COPY_RUN + 1)}
    return tuple(tokens(line) for line in lines), tuple(sorted(groups)), frozenset(runs)
