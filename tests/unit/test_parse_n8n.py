"""n8n parsers on handwritten packages."""

from __future__ import annotations

import functools
import json

import pytest

from ecoagent.crawlers import n8n_community, n8n_official
from ecoagent.crawlers.sandbox import evaluate
from ecoagent.schema import Candidate
from ecoagent.settings import UserError

from .fixtures_crawl import bare_entry, community

SHEET = {
    "displayName": "Demo Sheets ",
    "name": "demoSheets",
    "group": ["input"],
    "version": [1, 2],
    "description": "Old text",
    "properties": [],
}
SHEET_NEW = {
    **SHEET,
    "displayName": "Demo Sheets",
    "version": [3, 4.7],
    "defaultVersion": 4,
    "description": "Reads and writes   sheets",
    "usableAsTool": True,
    "credentials": [{"name": "sheetsOAuth2Api", "required": True}, {"name": "elsewhereApi"}],
    "codex": {
        "categories": ["Data"],
        "alias": ["xls"],
        "subcategories": {"Data": ["Tables"]},
        "resources": {"primaryDocumentation": [{"url": "https://docs.example.org/sheets"}]},
    },
    "properties": [
        {
            "displayName": "Careful, deprecated soon",
            "name": "warn",
            "type": "notice",
            "displayOptions": {"show": {}},
        },
        {
            "name": "resource",
            "type": "options",
            "options": [{"name": "Row", "value": "row"}, {"name": "Sheet", "value": "sheet"}],
        },
        {
            "name": "operation",
            "type": "options",
            "displayOptions": {"show": {"resource": ["row"]}},
            "options": [
                {"name": "Get", "value": "get", "action": "Get a row", "description": "Reads one row"},
                {"name": "Get", "value": "get", "description": "Deprecated: use the other one"},
            ],
        },
        {
            "name": "operation",
            "type": "options",
            "displayOptions": {"show": {"resource": ["sheet"]}},
            "options": [{"name": "Clear", "value": "clear"}],
        },
        {"name": "limit", "type": "number", "default": 5, "required": True},
    ],
}
OTHERS = [
    {
        "displayName": "Cron",
        "name": "cron",
        "version": 1,
        "group": ["trigger"],
        "hidden": True,
        "description": "x y",
    },
    {
        "displayName": "Fixer",
        "name": "fixer",
        "version": 1,
        "description": "Deprecated, use the parser instead",
        "properties": [],
    },
    {
        "displayName": "Zed",
        "name": "zed",
        "version": 1,
        "description": "Keeps memory",
        "properties": [
            {"type": "notice", "name": "n", "displayName": "This <b>Zed</b> integration is deprecated."}
        ],
    },
    {"displayName": "Mute", "name": "mute", "version": 1, "description": "", "properties": []},
    {
        "displayName": "Direct",
        "name": "direct",
        "version": 1,
        "description": "Calls a fixed address",
        "requestDefaults": {"baseURL": "https://api.direct-demo.io"},
        "properties": [],
    },
    {
        "displayName": "By Code",
        "name": "byCode",
        "version": 1,
        "description": "Calls what its code says",
        "properties": [],
    },
]
CREDENTIALS = [
    {
        "name": "oAuth2Api",
        "properties": [
            {"name": "clientId", "required": True},
            {"name": "clientSecret", "typeOptions": {"password": True}},
        ],
    },
    {
        "name": "sheetsOAuth2Api",
        "extends": ["oAuth2Api"],
        "properties": [
            {"name": "scope", "type": "hidden"},
            {"name": "server", "type": "string", "default": "https://sheets.demo.com"},
        ],
        "test": {"request": {"baseURL": "={{$credentials?.server}}", "url": "/me"}},
    },
]


def official(nodes: list[dict[str, object]] | None = None) -> dict[str, bytes]:
    listed = [SHEET_NEW, SHEET, *OTHERS] if nodes is None else nodes
    return {
        "dist/types/nodes.json": json.dumps(listed).encode(),
        "dist/types/credentials.json": json.dumps(CREDENTIALS).encode(),
        "dist/known/nodes.json": json.dumps(
            {
                "byCode": {"className": "ByCode", "sourcePath": "dist/nodes/By/ByCode.node.js"},
                "direct": {"className": "Direct", "sourcePath": "dist/nodes/Direct.node.ee.js"},
            }
        ).encode(),
        "dist/nodes/By/ByCode.node.js": b"const a = 1;",
        "dist/nodes/By/GenericFunctions.js": b"u = `https://api.bycode-demo.com/v1/${x}`; h = 'https://docs.bycode.com';",
        "package.json": json.dumps(
            {"license": "SEE LICENSE IN LICENSE.md", "repository": {"url": "git+https://example.org/r.git"}}
        ).encode(),
    }


def parse_official(granularity: str = "tool") -> dict[str, Candidate]:
    entry = bare_entry("n8n_official", "n8n-demo")
    return {c.record.id: c for c in n8n_official.parse(official(), entry, granularity)}  # type: ignore[arg-type]


def test_official_statuses() -> None:
    assert {i: (c.status, c.reason) for i, c in parse_official().items()} == {
        "n8n:n8n-demo.demoSheets": ("kept", None),
        "n8n:n8n-demo.cron": ("rejected", "hidden"),
        "n8n:n8n-demo.fixer": ("rejected", "deprecated"),
        "n8n:n8n-demo.zed": ("rejected", "deprecated"),
        "n8n:n8n-demo.mute": ("rejected", "no_description"),
        "n8n:n8n-demo.direct": ("kept", None),
        "n8n:n8n-demo.byCode": ("kept", None),
    }


def test_official_highest_version_is_read() -> None:
    record = parse_official()["n8n:n8n-demo.demoSheets"].record
    assert (record.display_name, record.description) == ("Demo Sheets", "Reads and writes sheets")
    assert record.version == "4.7"
    assert record.quality_flags == ["default_version_4"]
    assert not record.deprecated.state
    assert record.usable_as_tool
    assert record.tags == ["Data", "Tables", "xls"]
    assert record.docs_url == "https://docs.example.org/sheets"
    assert record.licence == "Demo License"
    assert record.parameter_names == ["limit", "operation", "resource"]
    assert json.loads(record.input_schema or "")["properties"]["operation"]["enum"] == ["get", "clear"]


def test_official_credentials_follow_extends() -> None:
    record = parse_official()["n8n:n8n-demo.demoSheets"].record
    elsewhere, sheets = record.auth
    assert (sheets.name, sheets.type, sheets.origin, sheets.required) == (
        "sheetsOAuth2Api",
        "oauth2",
        "extends",
        True,
    )
    assert [(f.name, f.secret) for f in sheets.fields] == [
        ("server", False),
        ("clientId", False),
        ("clientSecret", True),
    ]
    # A type of another package: named, its fields not guessed.
    assert (elsewhere.name, elsewhere.fields, elsewhere.required) == ("elsewhereApi", [], None)
    assert record.auth_required == "yes"


def test_official_endpoint_chain() -> None:
    found = parse_official()
    assert [(e.url, e.origin, e.is_template) for e in found["n8n:n8n-demo.demoSheets"].record.endpoints] == [
        ("={{$credentials?.server}}", "credential_test", True),
        ("https://sheets.demo.com", "credential_default", False),
    ]
    assert found["n8n:n8n-demo.direct"].record.endpoints[0].origin == "request_defaults"
    code = found["n8n:n8n-demo.byCode"].record.endpoints
    assert [(e.url, e.origin) for e in code] == [("https://api.bycode-demo.com/v1/${x", "literal")]


def test_enterprise_file_has_another_licence() -> None:
    assert parse_official()["n8n:n8n-demo.direct"].record.licence == n8n_official.ENTERPRISE


def test_operation_granularity_numbers_repeats() -> None:
    kept = {i: c.record for i, c in parse_official("operation").items() if c.status == "kept"}
    assert sorted(kept) == [
        "n8n:n8n-demo.byCode",
        "n8n:n8n-demo.demoSheets/row.get",
        "n8n:n8n-demo.demoSheets/row.get~2",
        "n8n:n8n-demo.demoSheets/sheet.clear",
        "n8n:n8n-demo.direct",
    ]
    first = kept["n8n:n8n-demo.demoSheets/row.get"]
    assert (first.display_name, first.description, first.group_name) == (
        "Get a row",
        "Reads one row",
        "Demo Sheets",
    )
    assert kept["n8n:n8n-demo.demoSheets/sheet.clear"].description == "Clear Sheet"
    assert kept["n8n:n8n-demo.byCode"].granularity == "operation"


def test_official_without_list_is_an_error() -> None:
    with pytest.raises(UserError, match=r"no dist/types/nodes\.json"):
        n8n_official.parse({"package.json": b"{}"}, bare_entry("n8n_official"))
    broken = {**official(), "dist/types/nodes.json": b"[{"}
    with pytest.raises(UserError, match="not JSON"):
        n8n_official.parse(broken, bare_entry("n8n_official"))


NODE = """
    const shared_1 = require("./shared");
    const workflow_1 = require("n8n-workflow");
    const zip = require("adm-zip");
    const made = new zip.default(); made.addFile("x").then(() => 1);
    class Demo {
        constructor() {
            this.description = {
                displayName: 'Demo', name: 'demo', group: ['transform'], version: 1,
                description: 'Does a demo', outputs: [workflow_1.NodeConnectionTypes.Main],
                requestDefaults: { baseURL: 'https://api.demo.io' },
                credentials: [{ name: 'demoApi', required: true }],
                properties: [...shared_1.fields, { name: 'fn', type: 'string', default: () => 1 }],
            };
            this.description.self = this.description;
        }
        async execute() { return process.exit(1); }
    }
    exports.Demo = Demo;
    """
SHARED = "exports.fields = [{ name: 'query', type: 'string' }];"
CREDENTIAL = """
    class DemoApi {
        constructor() {
            this.name = 'demoApi';
            this.properties = [{ name: 'apiKey', typeOptions: { password: true } }];
        }
    }
    exports.DemoApi = DemoApi;
    """
VERSIONED = """
    const w = require('n8n-workflow');
    class V1 { constructor(base) { this.description = { ...base, version: 1, description: 'one' }; } }
    class V2 { constructor(base) { this.description = { ...base, version: 2, description: 'two' }; } }
    class Ver extends w.VersionedNodeType {
        constructor() {
            const base = { displayName: 'Ver', name: 'ver', group: ['trigger'], defaultVersion: 1 };
            super({ 1: new V1(base), 2: new V2(base) }, base);
        }
    }
    exports.Ver = Ver;
    """


def parse_community(nodes: dict[str, str], extra: dict[str, str] | None = None) -> dict[str, Candidate]:
    members = community(nodes, extra)
    return {
        c.record.id: c for c in n8n_community.parse(members, bare_entry("n8n_community", "n8n-nodes-demo"))
    }


def test_community_node() -> None:
    found = parse_community(
        {"dist/Demo.node.js": NODE, "dist/Ver.node.js": VERSIONED},
        {
            "dist/shared.js": SHARED,
            "dist/DemoApi.credentials.js": CREDENTIAL,
            "dist/Demo.node.json": json.dumps({"categories": ["Fun"]}),
        },
    )
    demo = found["n8n:n8n-nodes-demo.demo"]
    assert demo.status == "kept"
    assert demo.record.tags == ["Fun"]
    assert demo.record.parameter_names == ["fn", "query"]
    assert demo.record.auth[0].type == "api_key"
    assert demo.record.endpoints[0].url == "https://api.demo.io"
    assert demo.record.licence == "MIT"
    versioned = found["n8n:n8n-nodes-demo.ver"].record
    assert (versioned.description, versioned.version, versioned.trigger) == ("two", "2", True)


def test_community_bad_nodes_are_rejects_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(n8n_community, "evaluate", functools.partial(evaluate, seconds=1))
    found = parse_community(
        {
            "dist/Loop.node.js": "while (true) {}",
            "dist/Throws.node.js": "throw new Error('no luck');",
            "dist/Empty.node.js": "exports.Empty = class { };",
            "dist/Demo.node.js": NODE,
        },
        {"dist/shared.js": SHARED},
    )
    details = {i: (c.reason, c.detail or "") for i, c in found.items() if c.status == "rejected"}
    assert {d[0] for d in details.values()} == {"not_evaluated"}
    assert "no luck" in details["n8n:n8n-nodes-demo.Throws"][1]
    assert "no description" in details["n8n:n8n-nodes-demo.Empty"][1]
    assert details["n8n:n8n-nodes-demo.Loop"][1]
    assert found["n8n:n8n-nodes-demo.demo"].status == "kept"


def test_community_needs_n8n_nodes() -> None:
    members = {"package.json": b'{"name": "left-pad"}', "index.js": b""}
    with pytest.raises(UserError, match="no n8n package"):
        n8n_community.parse(members, bare_entry("n8n_community"))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("exports.A = class { constructor() { this.x = typeof fetch(1); } };", None),
        (
            "const fs = require('fs');"
            "exports.A = class { constructor() { this.x = `${fs.readFileSync('/etc/passwd')}`; } };",
            "",
        ),
        ("exports.A = class { constructor() { this.x = typeof process.binding; } };", "undefined"),
        ("exports.A = class { constructor() { this.x = typeof std + typeof os; } };", "undefinedundefined"),
    ],
)
def test_sandbox_reaches_nothing(code: str, expected: str | None) -> None:
    result = evaluate({"A.node.js": code}, ["A.node.js"])
    assert result.errors == {}
    if expected is not None:
        assert result.values["A.node.js"]["x"] == expected


def test_sandbox_caps_memory_and_time() -> None:
    greedy = "let a = []; while (true) { a.push(new Array(100000).fill(7)); }"
    result = evaluate({"A.node.js": greedy}, ["A.node.js"], memory_bytes=16 * 1024 * 1024, seconds=5)
    assert "A.node.js" in result.errors
    result = evaluate({"A.node.js": "for (;;) {}"}, ["A.node.js"], seconds=1)
    assert "A.node.js" in result.errors
