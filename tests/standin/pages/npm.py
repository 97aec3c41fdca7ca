"""The search of a package registry: ``/-/v1/search?text=…&size=…&from=…``."""

from __future__ import annotations

from typing import Any

KEYWORD = "n8n-community-node-package"
MAX_SIZE = 250
LOOP_AT = 40
"""The looping variant answers its first page again from this offset on."""

_WORDS = """
anvil bodkin crozier distaff ewer flail gimlet harrow ingot jerkin kettle loom mangle noggin
oakum pestle quoin ripsaw sickle trivet urn valance winch yoke zinc adze besom churn dibble
fettle gavel hasp inkwell jib ketch ladle maul nib oar piton
"""

GOOD: list[tuple[str, str, str]] = [
    (f"n8n-nodes-{word}", f"{1 + i % 3}.{i % 10}.0", f"n8n node for {word.title()}")
    for i, word in enumerate(_WORDS.split())
]

ODD: list[tuple[Any, Any, Any]] = [
    ("../evil", "1.0.0", "A name that leaves its folder"),
    ("--registry=http://elsewhere.example", "1.0.0", "A name that is an option"),
    ("-g", "1.0.0", "A name that is a short option"),
    ("@scoped/n8n-nodes-thimble", "0.3.1", "A scoped package, as good as any"),
    ("@scoped/../n8n-nodes-slip", "1.0.0", "A scope that leaves its folder"),
    ("N8N-Nodes-Shout", "1.0.0", "Upper case, from old times"),
    ("n8n-nodes-" + "x" * 230, "1.0.0", "Longer than names may be"),
    ("n8n nodes blank", "1.0.0", "A blank in the name"),
    ("n8n-nodes-\u0430nvil", "1.0.0", "A letter from another alphabet"),
    ("n8n-nodes-anvil", "1.0.0", "The same name again"),
    ("n8n-nodes-noversion", None, "No version"),
    ("n8n-nodes-badversion", "latest; rm -rf ~", "A version that is a command"),
    ("file:../../etc/passwd", "1.0.0", "A name that is a path"),
    ("left-pad-for-n8n", "1.0.0", "Has the keyword but not the name"),
    (None, "1.0.0", "No name"),
    (17, "1.0.0", "A number for a name"),
]


def _object(name: Any, version: Any, text: Any, number: int, base: str) -> dict[str, Any]:
    return {
        "downloads": {"monthly": number * 31, "weekly": number * 7},
        "dependents": "0",
        "updated": "2026-10-01T08:00:00.000Z",
        "searchScore": 100.0 - number,
        "package": {
            "name": name,
            "keywords": [KEYWORD, "n8n"],
            "version": version,
            "description": text,
            "sanitized_name": name,
            "publisher": {"email": "maker@example.com", "username": "maker"},
            "maintainers": [{"email": "maker@example.com", "username": "maker"}],
            "license": "MIT",
            "date": f"2026-{number % 9 + 1:02d}-05T12:00:00.000Z",
            "links": {"npm": f"{base}/package/{name}", "repository": f"git+https://git.example/{number}.git"},
        },
        "score": {"final": 90.0, "detail": {"popularity": 1, "quality": 1, "maintenance": 1}},
        "flags": {"insecure": 0},
    }


def answer(text: str, size: int, start: int, base: str, *, loop: bool = False) -> dict[str, Any]:
    """What the search answers. Only the keyword of community nodes finds anything."""
    rows = [*GOOD, *ODD] if KEYWORD in text else []
    if loop and start >= LOOP_AT:
        start = 0
    objects = [
        _object(*row, number=start + i + 1, base=base)
        for i, row in enumerate(rows[max(start, 0) : max(start, 0) + min(max(size, 0), MAX_SIZE)])
    ]
    return {"objects": objects, "total": len(rows), "time": "2026-11-30T06:00:00.000Z"}
