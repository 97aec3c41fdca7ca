"""A simple scan of texts for keys and personal addresses, each finding with its reason."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass

from ecoagent.audit.rules import Severity

_KEYS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("aws_access_key", re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    ("github_token", re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,})")),
    ("slack_token", re.compile(r"\bxox[abeprs]-[A-Za-z0-9-]{10,}")),
    ("sk_key", re.compile(r"\bsk-(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}")),
    ("stripe_live_key", re.compile(r"\b[sr]k_live_[A-Za-z0-9]{16,}")),
    ("google_api_key", re.compile(r"\bAIza[0-9A-Za-z_-]{35}\b")),
    ("hub_token", re.compile(r"\bhf_[A-Za-z0-9]{30,}\b")),
    ("private_key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")),
    ("json_web_token", re.compile(r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{8,}")),
)
_ASSIGNED = re.compile(
    r"(?i)\b(?:api[_ -]?key|access[_ -]?token|auth[_ -]?token|secret|password)\b"
    r"\s*(?:is|=|:)\s*['\"]?([A-Za-z0-9_+/=-]{16,})"
)
_EMAIL = re.compile(r"\b[A-Za-z0-9._%+-]+@((?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,24})\b")
_PLACEHOLDER_DOMAIN = re.compile(
    r"(?i)^(?:.*\.)?(?:example\.[a-z.]+|[a-z0-9-]+\.(?:example|test|invalid|localhost|local)"
    r"|(?:your|my)?-?(?:domain|company|org|organization|business|site|website|email)\.(?:com|org|net|io))$"
)
_MIN_ENTROPY_BITS = 3.3
"""Per character; words run together stay below, random keys of 16 characters lie above."""


@dataclass(frozen=True)
class Finding:
    """Something in a text that must not be published as it is."""

    kind: str
    severity: Severity
    start: int
    end: int

    @property
    def reason(self) -> str:
        """Why it was flagged, without repeating it."""
        what = "a personal e-mail address" if self.kind == "email" else f"a {self.kind.replace('_', ' ')}"
        return f"looks like {what} at characters {self.start}-{self.end}"


def entropy_bits(text: str) -> float:
    """Shannon entropy of the characters, bits a character."""
    counts = Counter(text)
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts.values()) if text else 0.0


def scan(text: str) -> list[Finding]:
    """Findings in a text, by position; addresses of placeholder domains (example.com …) are no finding."""
    found = [Finding(kind, "critical", m.start(), m.end()) for kind, p in _KEYS for m in p.finditer(text)]
    for match in _ASSIGNED.finditer(text):
        value = match.group(1)
        if any(c.isdigit() for c in value) and entropy_bits(value) >= _MIN_ENTROPY_BITS:
            found.append(Finding("assigned_secret", "critical", match.start(1), match.end(1)))
    if "@" in text:
        for match in _EMAIL.finditer(text):
            if not _PLACEHOLDER_DOMAIN.match(match.group(1)):
                found.append(Finding("email", "warning", match.start(), match.end()))
    return sorted(found, key=lambda f: (f.start, f.end, f.kind))


def mask(text: str) -> tuple[str, int]:
    """The text with findings replaced by ``<kind>``, and how many there were."""
    findings = scan(text)
    for item in sorted(findings, key=lambda f: -f.start):
        text = f"{text[: item.start]}<{item.kind}>{text[item.end :]}"
    return text, len(findings)
