"""n8n parsers on handwritten packages."""

from __future__ import annotations

import functools
import json

import pytest

from ecoagent.crawlers import n8n_community, n8n_official, sandbox
from ecoagent.crawlers.n8n_auth import BORROWED, by_name, unknown_types
from ecoagent.crawlers.sandbox import evaluate
from ecoagent.schema import Candidate, ToolRecord
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
        {
            "name": "range",
            "type": "string",
            "required": True,
            "displayOptions": {"show": {"resource": ["row"], "operation": ["get"], "@version": [4.7]}},
        },
        {"name": "old", "type": "string", "displayOptions": {"show": {"@version": [{"_cnd": {"lt": 4}}]}}},
        {"name": "notForRows", "type": "string", "displayOptions": {"hide": {"resource": ["row"]}}},
        {"name": "size", "type": "number", "displayOptions": {"show": {"notForRows": ["x"]}}},
        {
            "name": "more",
            "type": "collection",
            "options": [
                {"name": "both", "type": "string"},
                {
                    "name": "clearOnly",
                    "type": "string",
                    "displayOptions": {"show": {"/operation": ["clear"]}},
                },
            ],
        },
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
        "dist/nodes/By/ByCode.node.js": b"const g = require('./GenericFunctions');",
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
    assert record.quality_flags == ["credential_type_elsewhere", "default_version_4"]
    assert not record.deprecated.state
    assert record.usable_as_tool
    assert record.tags == ["Data", "Tables", "xls"]
    assert record.docs_url == "https://docs.example.org/sheets"
    assert record.licence == "Demo License"
    assert record.parameter_names == [
        "limit",
        "more",
        "notForRows",
        "old",
        "operation",
        "range",
        "resource",
        "size",
    ]
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
    assert [(e.url, e.origin) for e in code] == [("https://api.bycode-demo.com/v1/${x}", "literal")]


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


def inputs_of(record: ToolRecord) -> tuple[list[str], list[str], list[str]]:
    """Parameters, required ones and those of the collection ``more``."""
    schema = json.loads(record.input_schema or "")
    inner = sorted(schema["properties"]["more"]["properties"])
    return record.parameter_names, schema.get("required", []), inner


def test_operations_have_the_inputs_shown_for_them() -> None:
    kept = {i.partition("/")[2]: c.record for i, c in parse_official("operation").items() if "/" in i}
    assert inputs_of(kept["row.get"]) == (["limit", "more", "range"], ["limit", "range"], ["both"])
    # What depends on another input may be shown but cannot be required; resource and operation are fixed.
    assert inputs_of(kept["sheet.clear"]) == (
        ["limit", "more", "notForRows", "size"],
        ["limit"],
        ["both", "clearOnly"],
    )


def test_credential_types_of_another_package() -> None:
    entry = bare_entry("n8n_official", "n8n-demo")
    lent = [{"name": "elsewhereApi", "properties": [{"name": "key", "typeOptions": {"password": True}}]}]
    members = {**official(), f"{BORROWED}n8n__other": json.dumps(lent).encode()}
    record = next(c.record for c in n8n_official.parse(members, entry) if c.record.name == "demoSheets")
    first = record.auth[0]
    assert (first.name, first.type, [f.name for f in first.fields]) == (
        "elsewhereApi",
        "api_key",
        ["key"],
    )
    assert record.quality_flags == ["default_version_4"]
    # What the package says of its own types wins over what is lent.
    own = [{"name": "sheetsOAuth2Api", "properties": [{"name": "wrong"}]}]
    members = {**official(), f"{BORROWED}n8n__other": json.dumps(own).encode()}
    again = next(c.record for c in n8n_official.parse(members, entry) if c.record.name == "demoSheets")
    assert "wrong" not in {f.name for a in again.auth for f in a.fields}


def test_a_type_that_extends_one_elsewhere_is_flagged() -> None:
    types = by_name([{"name": "mineApi", "extends": ["farApi"], "properties": []}])
    assert unknown_types({"credentials": [{"name": "mineApi"}]}, types) == ["farApi"]
    assert unknown_types({"credentials": [{"name": "mineApi"}]}, {**types, "farApi": {}}) == []


def test_all_schemas_are_json_schema() -> None:
    import jsonschema

    for granularity in ("tool", "operation"):
        for found in parse_official(granularity).values():
            if found.record.input_schema is not None:
                jsonschema.Draft202012Validator.check_schema(json.loads(found.record.input_schema))


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


ATTACKS = {
    "environment": "exports.A = class { constructor() { this.x = Object.keys(process.env).length; } };",
    "global by constructor": """
        const g = (function () {}).constructor('return this')();
        exports.A = class { constructor() { this.x = typeof g.std + typeof g.os + typeof g.require; } };
        """,
    "eval": "exports.A = class { constructor() { this.x = eval('typeof std + typeof require'); } };",
    "dynamic import": """
        exports.A = class { constructor() { this.x = 1; import('fs').then((m) => { this.x = m; }); } };
        """,
    "pollution": """
        Object.prototype.polluted = 'yes'; Array.prototype.map = () => ['lies'];
        JSON.stringify = () => 'lies'; JSON.parse = () => ({});
        exports.A = class { constructor() { this.x = 1; } };
        """,
    "proto key": 'exports.A = class { constructor() { this.x = JSON.parse(\'{"__proto__": {"y": 1}}\'); } };',
    "half characters": "exports.A = class { constructor() { this.x = '\\ud800'; } };",
    "cycle": "exports.A = class { constructor() { this.x = {}; this.x.self = this.x; } };",
}
EXPECTED = {
    "environment": 0,
    "global by constructor": "undefinedundefinedundefined",
    "eval": "undefinedfunction",
    "dynamic import": 1,
    "pollution": 1,
    "proto key": {},
    "half characters": "?",
    "cycle": {},
}


@pytest.mark.parametrize("attack", sorted(ATTACKS))
def test_sandbox_attacks_get_nothing(attack: str) -> None:
    plain = "exports.B = class { constructor() { this.x = [1].map((v) => v + 1); } };"
    files = {"A.node.js": ATTACKS[attack], "B.node.js": plain}
    result = evaluate(files, ["A.node.js", "B.node.js"], seconds=2)
    assert result.values["A.node.js"]["x"] == EXPECTED[attack]
    # Each file has a world of its own: what one spoils, the next does not see.
    assert result.values["B.node.js"] == {"x": [2]}
    json.dumps(result.values, ensure_ascii=False).encode("utf-8")


@pytest.mark.parametrize(
    "code",
    [
        "exports.A = class { constructor() { const f = () => f() + 1; f(); } };",
        "exports.A = class { get x() { for (;;) {} } constructor() { "
        "Object.defineProperty(this, 'y', { enumerable: true, get() { for (;;) {} } }); } };",
        "exports.A = class { constructor() { Object.defineProperty(this, 'y', "
        "{ enumerable: true, get() { throw new Error('trap'); } }); } };",
        "exports.A = class { constructor() { this.x = 'x'.repeat(1 << 26); } };",
        "exports.A = class { constructor() { this.x = Array.from({ length: 1e6 }, () => ({})); } };",
        "exports.A = class { constructor() { this.x = new Proxy({}, { ownKeys() { for (;;) {} } }); } };",
    ],
)
def test_sandbox_traps_are_errors(code: str) -> None:
    result = evaluate({"A.node.js": code}, ["A.node.js"], seconds=1, memory_bytes=200 * 1024 * 1024)
    assert set(result.errors) == {"A.node.js"}


def test_deeply_nested_values_are_cut() -> None:
    code = """
        let v = 'end'; for (let i = 0; i < 100000; i++) { v = [v]; }
        exports.A = class { constructor() { this.x = v; } };
        """
    result = evaluate({"A.node.js": code}, ["A.node.js"], seconds=5)
    assert len(json.dumps(result.values)) < 1000


@pytest.mark.parametrize("answer", [None, 7, "no json", "[1]", "{}", "[" * 100_000, '{"value": '])
def test_answers_are_not_trusted(answer: object) -> None:
    value, error = sandbox._read(answer)
    assert value is None
    assert error


@pytest.mark.parametrize(
    "code",
    [
        '/^(a+)+$/.test("a".repeat(40) + "b");',
        "Array.prototype.indexOf.call({length: 9007199254740991}, 1);",
        "function f(){f()} try{f()}catch(e){}"
        "var o={},p=o; for(var i=0;i<1e5;i++){p.a={};p=p.a} JSON.stringify(o);",
    ],
    ids=["regular expression", "native loop", "deep object"],
)
def test_what_the_engine_cannot_stop_ends_only_its_own_process(code: str) -> None:
    good = "exports.B = class { constructor() { this.description = { name: 'b' } } }"
    result = evaluate({"A.node.js": code, "B.node.js": good}, ["A.node.js", "B.node.js"], seconds=1)
    assert set(result.errors) == {"A.node.js"}
    assert result.values["B.node.js"]["description"] == {"name": "b"}
