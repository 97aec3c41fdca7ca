"""What a careful human reads from n8n's list and the registry's search; keys as in ``truth.py``."""

from __future__ import annotations

from typing import Any

from tests.standin.pages.n8n import PLAIN

Entry = dict[str, Any]


def _n8n(package: str, node: str, shown: str, description: str | None, **more: Any) -> Entry:
    base = {"package": package, "node": node, "name": shown, "description": description}
    return {**base, "bad": None, "language": "en", "optional": False, **more}


N8N_VERIFIED: list[Entry] = [
    *(_n8n(*row) for row in PLAIN),
    _n8n("n8n-nodes-nodescript", "nodescript", "Nodescript", "Run small scripts"),
    _n8n(
        "n8n-nodes-padaria",
        "padaria",
        "Padaria",
        "Consulta os pedidos e os preços da padaria na cidade",
        language="pt",
    ),
    _n8n("../evil", "evil", "Evil", None, bad="package_name"),
    _n8n("n8n-nodes-twin", "twinRead", "Twin Read", "Reads twin records"),
    _n8n("n8n-nodes-twin", "twinTrigger", "Twin Trigger", "Starts when a twin changes"),
    _n8n("@Scope/n8n-nodes-Loud", "loud", "Loud", None, bad="package_name"),
    _n8n("n8n-nodes-empty", "empty", "Empty", None, bad="no_description"),
    _n8n("n8n-nodes-hidden", "hidden", "Hidden", "Withdrawn by its maker", bad="unpublished", optional=True),
    _n8n("n8n-nodes-numbers", "numbers", "Numbers", "Counts as text", downloads=None),
    _n8n("n8n-nodes-longtail", "longtail", "Longtail", ("Very long. " * 500).strip()),
    _n8n("n8n-nodes-bare", "bare", "bare", None, bad="no_description"),
    _n8n("https://elsewhere.example/n8n-nodes-url", "url", "Url", None, bad="package_name"),
]
"""One more entry (id 212) has no attributes; ``n8n-nodes-zither`` comes on two pages."""

N8N_TWICE = "n8n-nodes-zither"

_NPM_WORDS = """
anvil bodkin crozier distaff ewer flail gimlet harrow ingot jerkin kettle loom mangle noggin
oakum pestle quoin ripsaw sickle trivet urn valance winch yoke zinc adze besom churn dibble
fettle gavel hasp inkwell jib ketch ladle maul nib oar piton
"""

NPM_GOOD = ["@scoped/n8n-nodes-thimble", *(f"n8n-nodes-{word}" for word in _NPM_WORDS.split())]
"""Names to be found, each once."""

NPM_OPTIONAL = ["left-pad-for-n8n", "n8n-nodes-noversion", "n8n-nodes-badversion"]
"""Whether these count is a matter of taste; their versions must not be believed."""
