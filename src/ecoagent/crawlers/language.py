"""Language of a short text by its function words; says nothing when it cannot tell."""

from __future__ import annotations

import re

_WORDS: dict[str, str] = {
    "en": "the a an of to and in for with that this is are your you from by on or it be can into when using "
    "use which if at as will has have not all get gets returns return useful input should given",
    "pt": "o os as um uma do da dos das no na nos nas em para com que por ao pelo pela é são você seu sua "
    "não mensagem dados como mais ou enviar recebe eventos trabalhe hub foco",
    "es": "el los las un una del en para con que por al es son usted su sus no como más o y enviar "
    "datos mensaje",
    "fr": "le les un une des du de en pour avec que par au aux est sont vous votre ne pas comme plus ou et",
    "de": "der die das ein eine des dem den im in für mit dass von zu ist sind sie ihr nicht wie mehr "
    "oder und",
    "it": "il lo gli un una del della dei delle in per con che da al è sono tuo suo non come più o e",
}
_SHARED = frozenset(("no", "in", "as", "o", "e", "a", "on", "or", "not"))
"""Words that several of the languages have: too weak to count alone."""
_MARKS: dict[str, str] = {"pt": "ãõ", "es": "ñ¿¡", "de": "ßäöü", "fr": "œèêù"}
_TOKEN = re.compile(r"[^\W\d_]+")
_LISTS = {language: frozenset(words.split()) for language, words in _WORDS.items()}


def detect_language(text: str) -> str | None:
    """ISO 639-1 code of ``text``, or ``None`` where its words do not decide.

    Counts distinct function words of six languages (half for those that several share, one more
    for letters only one has); the best must reach 1.5 and lead by 1.
    """
    tokens = {t.lower() for t in _TOKEN.findall(text)}
    scores: dict[str, float] = {}
    for language, words in _LISTS.items():
        hits = tokens & words
        scores[language] = sum(0.5 if h in _SHARED else 1.0 for h in hits)
        if any(mark in text.lower() for mark in _MARKS.get(language, "")):
            scores[language] += 1.0
    ranked = sorted(scores.items(), key=lambda s: (-s[1], s[0]))
    (best, top), (_, second) = ranked[0], ranked[1]
    return best if top >= 1.5 and top - second >= 1.0 else None
