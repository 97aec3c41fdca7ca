"""Words that lexical rankers count: how a text becomes terms (text analysis)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise

from ecoagent.schema import normalize_query
from ecoagent.settings import LexicalAnalysis, UserError

Analyzer = Callable[[str], list[str]]
"""A text's terms in order, repeats kept."""

_WORD = re.compile(r"\w+")
_RUN = re.compile(r"[^\W_]+")


def words(text: str) -> list[str]:
    r"""``\w+`` runs of the normalised text, in order, repeats kept: an identifier is one word."""
    return _WORD.findall(normalize_query(text))


def identifier_parts(run: str) -> tuple[str, ...]:
    """Words of a run of letters and digits, as they stand: ``getHTTPPort2`` is get, HTTP, Port, 2.

    A plural of capitals is one word: ``listAPIs`` is list, APIs.
    """
    cuts = [0, *_cuts(run), len(run)]
    return tuple(run[start:end] for start, end in pairwise(cuts))


def _cuts(run: str) -> Iterator[int]:
    for place in range(1, len(run)):
        before, here, after = run[place - 1], run[place], run[place + 1 : place + 3]
        if before.isdigit() != here.isdigit() or (before.islower() and here.isupper()):
            yield place
        elif before.isupper() and here.isupper() and after[:1].islower():
            plural = after[0] == "s" and not after[1:].islower()
            if not plural:
                yield place


@lru_cache(maxsize=1 << 16)
def _split(run: str) -> tuple[str, ...]:
    """Lower-case parts; a compound stays beside them, so that ``youtube`` finds ``YouTube``."""
    parts = tuple(part.lower() for part in identifier_parts(run))
    return parts if len(parts) == 1 else (*parts, run.lower())


def split_words(text: str) -> list[str]:
    """Words of the NFKC text in lower case; ``snake_case``, ``camelCase``, paths and digits are split."""
    return [part for run in _RUN.findall(unicodedata.normalize("NFKC", text)) for part in _split(run)]


def _plain() -> Analyzer:
    return words


def _english() -> Analyzer:
    from bm25s.stopwords import STOPWORDS_EN_PLUS
    from Stemmer import Stemmer

    stopped, stemmer = frozenset(STOPWORDS_EN_PLUS), Stemmer("english")

    def analyze(text: str) -> list[str]:
        found = split_words(text)
        # "Who are you?" is still a query.
        kept = [word for word in found if word not in stopped] or found
        stems: list[str] = stemmer.stemWords(kept)
        return stems

    return analyze


_ANALYZERS: Mapping[str, Callable[[], Analyzer]] = {"plain": _plain, "english": _english}

ANALYSIS_NOTES: Mapping[LexicalAnalysis, str] = {
    "plain": r"\w+ words in lower case: an identifier is one word, nothing is dropped or stemmed.",
    "english": "identifiers are split into their words, bm25s's longer list of English stop words is left "
    "out, the rest is stemmed (Snowball's English stemmer).",
}
"""What each analysis does, for whoever reads its results."""


def analyzer(analysis: LexicalAnalysis) -> Analyzer:
    """The analysis of that name, for one thread: a stemmer is not to be shared.

    Raises:
        UserError: there is none.
    """
    if analysis not in _ANALYZERS:
        raise UserError(
            f"unknown lexical analysis {analysis!r}",
            remedy=f"use {', '.join(_ANALYZERS)} in baselines.lexical",
        )
    return _ANALYZERS[analysis]()
