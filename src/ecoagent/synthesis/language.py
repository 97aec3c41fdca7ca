"""Whether a short request is in English: a cheap test that reads the small words of a line."""

from __future__ import annotations

import re
import unicodedata

_ENGLISH_WORDS = """
    the to of for and are my our you your it this that with from by can could does did what how when where
    which who why please need want any all some new get got find show tell give make send let us into there
    if not have has had been were about up out or i'm i've don't we they their them is was at on in be as
    search look check list add create delete update open read write book convert translate save share move
    help using use should would will now next last today tomorrow yesterday i me
"""
_OTHER_WORDS = """
    el la los las una unos unas del que por para con como cómo dónde cuándo qué mi mis tu sus al lo le les
    está están busca buscar muestra muéstrame envía enviar dame quiero necesito puedes crea ayer mañana hoy
    des du dans sur avec pour est et mes mon ma vos votre nous je une au aux trouve montre envoie donne
    réserve cherche où comment quel quelle quels hier demain aujourd s'il combien
    der den dem das und ist nicht ein eine einen einer mit auf ich wie wo wann warum zeige zeig finde suche
    sende schick buche gib bitte kann können meine meinen mein für von zum zur nach morgen gestern heute im
    il gli di della dello delle dei nel nella per che non sono mio mia miei trova cerca mostra invia prenota
    dammi domani ieri oggi vorrei posso come quanto dove
    os uma uns umas do da dos das em com não sem meu minha meus seu encontre procure reserve envie mostre
    preciso quero amanhã ontem hoje onde qual
    het een van voor naar met mijn niet zoek boek stuur toon geef ik wil hoe waar morgen gisteren vandaag
    och att för till på jag hitta visa skicka boka min mitt mina en ett
"""
_ENGLISH = frozenset(_ENGLISH_WORDS.split())
_OTHER = frozenset(_OTHER_WORDS.split()) - _ENGLISH
_QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”|«[^»]*»|(?<!\w)'[^']*'(?!\w)|‘[^’]*’|`[^`]*`|https?://\S+")
_PROPER = re.compile(
    r"\b[A-ZÀ-Þ][\w'’]*(?:\s+(?:de|la|las|los|el|du|des|di|del|della|der|den|von|van|do|da|dos|le|les|y|e|et|und|in"
    r"|[A-ZÀ-Þ][\w'’]*)\b)*\s+[A-ZÀ-Þ][\w'’]*"
)
"""A name of several words: El Camino de la Costa says nothing of the language around it."""
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
MOST_WITHOUT_ENGLISH = 7
"""Words that a line may have without one English small word, as "Translate invoice 4412" has."""


def is_english(text: str) -> bool:
    """Whether a line reads as English: Latin letters, and small words not outnumbered by other languages'.

    What stands in quotes, addresses and names of several words are left out where something remains:
    people ask in English for things called otherwise.
    """
    bare = _without_names(text)
    letters = [c for c in bare if c.isalpha()]
    foreign = sum(not unicodedata.name(c, "").startswith(("LATIN", "FULLWIDTH LATIN")) for c in letters)
    if letters and foreign > 0.2 * len(letters):
        return False
    found = [w.replace("’", "'") for w in _WORD.findall(bare.lower())]
    english = sum(w in _ENGLISH or w.split("'")[0] in _ENGLISH for w in found)
    other = sum(w in _OTHER or w.split("'")[0] in _OTHER for w in found)
    # Marks that only other languages set before a sentence.
    other += 2 * ("¿" in bare or "¡" in bare)
    if not english and any(not w.isascii() for w in found):
        other += 1
    return other <= english if english else not other and len(found) <= MOST_WITHOUT_ENGLISH


def _without_names(text: str) -> str:
    for pattern in (_QUOTED, _PROPER):
        shorter = pattern.sub(" ", text)
        if len(_WORD.findall(shorter)) >= 2:
            text = shorter
    return text
