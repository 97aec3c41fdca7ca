"""n8n's list of verified community nodes: what its API answers, page by page.

The node description names the package with a ``preview`` token (``n8n-nodes-preview-abc.abc``) where
the entry's own name has none, as in the real answers.
"""

from __future__ import annotations

from typing import Any

PAGE = 25

# package, node, display name, description
PLAIN: list[tuple[str, str, str, str]] = [
    ("n8n-nodes-aldermoor", "aldermoor", "Aldermoor", "Book rooms and desks in Aldermoor"),
    ("n8n-nodes-basketry", "basketry", "Basketry", "Read and change orders of a Basketry shop"),
    ("n8n-nodes-candlewick", "candlewick", "Candlewick", "Send candles to people by post"),
    ("n8n-nodes-dovecote", "dovecote", "Dovecote", "Send short messages through Dovecote"),
    ("@elmtree/n8n-nodes-elmtree", "elmtree", "Elmtree", "Look up family trees in Elmtree"),
    ("n8n-nodes-farrier", "farrier", "Farrier", "Plan visits of a farrier"),
    ("n8n-nodes-gatehouse", "gatehouse", "Gatehouse", "Open and close doors with Gatehouse"),
    ("n8n-nodes-haywain", "haywain", "Haywain", "Follow parcels of the Haywain carrier"),
    ("n8n-nodes-inkhorn", "inkhorn", "Inkhorn", "Check spelling and style with Inkhorn"),
    ("n8n-nodes-jackdaw", "jackdaw", "Jackdaw", "Collect shiny links into Jackdaw lists"),
    ("n8n-nodes-kilnfire", "kilnfire", "Kilnfire", "Watch the heat of a Kilnfire oven"),
    ("n8n-nodes-lambkin", "lambkin", "Lambkin", "Keep records of a flock"),
    ("n8n-nodes-marigold", "marigold", "Marigold", "Order flowers with Marigold"),
    ("n8n-nodes-nutmeg", "nutmeg", "Nutmeg", "Find recipes by spice"),
    ("n8n-nodes-oxbow", "oxbow", "Oxbow", "Read water levels of rivers"),
    ("n8n-nodes-pinfold", "pinfold", "Pinfold", "Report stray animals to Pinfold"),
    ("n8n-nodes-quillwort", "quillwort", "Quillwort", "Name a plant from a picture"),
    ("n8n-nodes-rookery", "rookery", "Rookery", "Count birds with Rookery cameras"),
    ("n8n-nodes-saltpan", "saltpan", "Saltpan", "Read sensors of salt works"),
    ("n8n-nodes-tollgate", "tollgate", "Tollgate", "Work out road tolls"),
    ("n8n-nodes-undercroft", "undercroft", "Undercroft", "Store files in an Undercroft vault"),
    ("n8n-nodes-verjuice", "verjuice", "Verjuice", "Keep a wine cellar's books"),
    ("n8n-nodes-weathervane", "weathervane", "Weathervane", "Get the wind at a place"),
    ("n8n-nodes-yarrow", "yarrow", "Yarrow", "Draw a hexagram"),
    ("n8n-nodes-zither", "zither", "Zither", "Tune instruments from a recording"),
    ("n8n-nodes-almanack", "almanack", "Almanack", "Look up tides and moons"),
    ("n8n-nodes-bellfounder", "bellfounder", "Bellfounder", "Ring alarms on many channels"),
    ("n8n-nodes-cartwright", "cartwright", "Cartwright", "Rent vans by the hour"),
    ("n8n-nodes-drystone", "drystone", "Drystone", "Estimate walls by length"),
    ("n8n-nodes-eyrie", "eyrie", "Eyrie", "Fly survey drones"),
    ("n8n-nodes-fishwife", "fishwife", "Fishwife", "Prices of the fish market"),
    ("n8n-nodes-gleaner", "gleaner", "Gleaner", "Extract tables from web pages"),
    ("n8n-nodes-hopyard", "hopyard", "Hopyard", "Track a brew from malt to glass"),
    ("n8n-nodes-isinglass", "isinglass", "Isinglass", "Clear noise from pictures"),
    ("n8n-nodes-joinery", "joinery", "Joinery", "Merge records of two lists"),
    ("n8n-nodes-knacker", "knacker", "Knacker", "Delete old files by rule"),
    ("n8n-nodes-limekiln", "limekiln", "Limekiln", "Turn documents into text"),
    ("n8n-nodes-mudlark", "mudlark", "Mudlark", "Search finds of the river bank"),
    ("n8n-nodes-netmaker", "netmaker2", "Netmaker Two", "Check which hosts answer"),
    ("n8n-nodes-ostler", "ostler", "Ostler", "Reserve stables"),
    ("n8n-nodes-peddler", "peddler", "Peddler", "List goods on many markets"),
    ("n8n-nodes-quern", "quern", "Quern", "Grind logs into numbers"),
    ("n8n-nodes-reeve", "reeve", "Reeve", "Keep a village's accounts"),
    ("n8n-nodes-smithy", "smithy", "Smithy", "Start builds and read their logs"),
]

FIRST_ID = 101


def entry(
    number: int, package: str, node: str, shown: str, text: str, *, description: Any = "made", **changes: Any
) -> dict[str, Any]:
    """One entry of the answer's ``data``. ``description`` replaces the node description."""
    preview = package.replace("n8n-nodes-", "n8n-nodes-preview-")
    made = {
        "displayName": shown,
        "name": f"{preview}.{node}",
        "icon": {"light": f"file:{node}.svg", "dark": f"file:{node}.dark.svg"},
        "group": ["transform"],
        "version": 1,
        "subtitle": '={{$parameter["operation"] + ": " + $parameter["resource"]}}',
        "description": text,
        "defaults": {"name": shown},
        "usableAsTool": number % 2 == 0,
        "inputs": ["main"],
        "outputs": ["main"],
        "credentials": [{"name": f"{node}Api", "required": True}],
        "requestDefaults": {"baseURL": f"https://api.{node}.example/v1"},
        "properties": [
            {
                "displayName": "Resource",
                "name": "resource",
                "type": "options",
                "noDataExpression": True,
                "options": [{"name": "Item", "value": "item"}],
                "default": "item",
            },
            {
                "displayName": "Operation",
                "name": "operation",
                "type": "options",
                "noDataExpression": True,
                "displayOptions": {"show": {"resource": ["item"]}},
                "options": [
                    {"name": "Get", "value": "get", "description": "Get an item", "action": "Get an item"},
                    {
                        "name": "Create",
                        "value": "create",
                        "description": "Deprecated: use Get",
                        "action": "Create",
                    },
                ],
                "default": "get",
            },
            {"displayName": "Item ID", "name": "itemId", "type": "string", "required": True, "default": ""},
        ],
        "codex": {"categories": ["Miscellaneous"], "alias": [node, "invented"]},
    }
    attributes: dict[str, Any] = {
        "authorGithubUrl": f"https://github.com/{node}-makers",
        "authorName": f"{shown} makers",
        "checksum": f"{number:064x}",
        "createdAt": f"2025-{number % 12 + 1:02d}-11T10:00:00.000Z",
        "updatedAt": f"2026-{number % 9 + 1:02d}-20T11:30:00.000Z",
        "publishedAt": f"2025-{number % 12 + 1:02d}-12T10:00:00.000Z",
        "description": text,
        "displayName": shown,
        "name": f"{package}.{node}",
        "numberOfStars": number % 40,
        "numberOfDownloads": number * 37,
        "packageName": package,
        "npmVersion": f"1.{number % 7}.{number % 3}",
        "isOfficialNode": number % 3 == 0,
        "companyName": f"{shown} Ltd" if number % 3 == 0 else None,
        "isPublished": True,
        "nodeDescription": made if description == "made" else description,
        "nodeVersions": [{"npmVersion": f"1.{number % 7}.{number % 3}", "checksum": f"{number:064x}"}],
    }
    return {"id": number, "attributes": {**attributes, **changes}}


def entries() -> list[dict[str, Any]]:
    """Every entry, in the order of the list: the plain ones, then the traps."""
    plain = [entry(FIRST_ID + i, *row) for i, row in enumerate(PLAIN)]
    traps = [
        entry(201, "n8n-nodes-nodescript", "nodescript", "Nodescript", "Run small scripts", description=None),
        entry(
            202,
            "n8n-nodes-padaria",
            "padaria",
            "Padaria",
            "Consulta os pedidos e os preços da padaria na cidade",
        ),
        entry(203, "../evil", "evil", "Evil", "A package name that leaves its folder"),
        entry(204, "n8n-nodes-twin", "twinRead", "Twin Read", "Reads twin records"),
        entry(205, "n8n-nodes-twin", "twinTrigger", "Twin Trigger", "Starts when a twin changes"),
        entry(206, "@Scope/n8n-nodes-Loud", "loud", "Loud", "An upper-case scope"),
        entry(207, "n8n-nodes-empty", "empty", "Empty", ""),
        entry(208, "n8n-nodes-hidden", "hidden", "Hidden", "Withdrawn by its maker", isPublished=False),
        entry(209, "n8n-nodes-numbers", "numbers", "Numbers", "Counts as text", numberOfDownloads="many"),
        entry(210, "n8n-nodes-longtail", "longtail", "Longtail", "Very long. " * 500),
        {"id": 211, "attributes": {"name": "n8n-nodes-bare.bare", "packageName": "n8n-nodes-bare"}},
        {"id": 212, "attributes": None},
        entry(
            213, "https://elsewhere.example/n8n-nodes-url", "url", "Url", "A package name that is an address"
        ),
    ]
    return plain + traps


def answer(page: int, size: int = PAGE) -> dict[str, Any]:
    """Page ``page`` (from 1) of the list.

    Between two pages somebody publishes a node: everything moves on by one, so the last entry of page 1
    comes again as the first of page 2. The total counts entries nobody is shown.
    """
    rows = entries()
    size = min(max(size, 1), PAGE)
    start = (page - 1) * size - (page > 1)
    pages = -(-(len(rows) + 1) // size)
    shown = rows[start : start + size] if 1 <= page <= pages else []
    return {
        "data": shown,
        "meta": {"pagination": {"page": page, "pageSize": size, "pageCount": pages, "total": len(rows) + 19}},
    }
