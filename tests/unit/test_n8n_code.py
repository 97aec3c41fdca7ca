"""Addresses read off compiled n8n code."""

from __future__ import annotations

import pytest

from ecoagent.crawlers.n8n_code import closure, literals_of, required, urls_of
from ecoagent.crawlers.n8n_endpoints import endpoints_of


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "const o = { uri: uri || `https://api.demo.io/v1${path}`, json: true };",
            "https://api.demo.io/v1${path}",
        ),
        ("const base = 'https://api.demo.io';", "https://api.demo.io"),
        ("const o = { url: `https://${sub}.demo.io/api`};", "https://${sub}.demo.io/api"),
        ("request.call(this, 'GET', {}, 'https://api.demo.io/me')", "https://api.demo.io/me"),
        ("x = { baseURL: 'https://docs.googleapis.com/v1' };", "https://docs.googleapis.com/v1"),
        ("x = { uri: `${credentials.url}/api${path}` };", "${credentials.url}/api${path}"),
        (
            "const baseUrl = trim(credentials.baseUrl);\noptions.uri = `${baseUrl}/v1${e}`;",
            "${baseUrl}/v1${e}",
        ),
    ],
)
def test_called(line: str, expected: str) -> None:
    found = urls_of(line)
    assert [*found.called, *found.templates] == [expected]


@pytest.mark.parametrize(
    "line",
    [
        "// see https://api.demo.io/reference",
        "// url: 'https://api.demo.io'",
        "placeholder: 'https://shop.demo.io',",
        "documentationUrl: 'https://guide.demo.io/x',",
        "description: 'https://guide.demo.io/x',",
        "throw new Error('Go to https://api.demo.io first');",
        "const s = { scope: 'https://www.googleapis.com/auth/drive' };",
        "const scopes = ['https://www.googleapis.com/auth/drive'];",
        "if (url.startsWith('https://api.demo.io')) {",
        "if (host === 'https://api.demo.io') {",
        "url: 'https://docs.demo.io/start',",
        "url: 'https://github.com/demo/demo',",
        "url: 'https://api.example.com/users',",
        "url: 'http://localhost:3000',",
        "url: 'https://',",
        "url: `https://${host}`,",
        "auth: `${credentials.apiKey}`,",
        "auth: `${apiKey}:X`,",
        "headers: { Referer: 'https://www.demo.io' },",
    ],
)
def test_not_called(line: str) -> None:
    found = urls_of(line)
    assert [*found.called, *found.others, *found.templates] == []


CODE = {
    "dist/nodes/Demo/Demo.node.js": "require('./v1/DemoV1'); require('./v2/DemoV2');",
    "dist/nodes/Demo/v1/DemoV1.js": "const url = 'https://old.demo.io';",
    "dist/nodes/Demo/v2/DemoV2.js": ""
    "require('../GenericFunctions');require('./methods');require('../../Other/x')",
    "dist/nodes/Demo/v2/methods/index.js": "out.push({ url: 'https://app.demo.io/show' });",
    "dist/nodes/Demo/GenericFunctions.js": ""
    "u = 'https://auth.demo.io/token'; url = 'https://api.demo.io/v2';",
    "dist/nodes/Other/x.js": "const url = 'https://other.io/';",
}


def test_requires_are_followed_in_the_nodes_folder_newest_version_only() -> None:
    start = "dist/nodes/Demo/Demo.node.js"
    assert closure(start, CODE) == [
        start,
        "dist/nodes/Demo/v2/DemoV2.js",
        "dist/nodes/Demo/GenericFunctions.js",
        "dist/nodes/Demo/v2/methods/index.js",
    ]
    assert set(required(start, CODE)) == set(CODE)
    assert literals_of(start, CODE)[0] == "https://api.demo.io/v2"
    assert not any("app.demo.io" in u for u in literals_of(start, CODE))
    assert literals_of("not/there.js", CODE) == []


def test_circular_requires_end() -> None:
    code = {
        "nodes/A/a.js": "require('./b')",
        "nodes/A/b.js": "require('./a'); require('..'); require('../../../x')",
    }
    assert closure("nodes/A/a.js", code) == ["nodes/A/a.js", "nodes/A/b.js"]


def test_default_server_of_a_credential_is_the_last_resort() -> None:
    types = {
        "demoApi": {"name": "demoApi", "properties": [{"name": "url", "default": "https://api.demo.io"}]}
    }
    node = {"credentials": [{"name": "demoApi"}]}
    assert [(e.url, e.origin) for e in endpoints_of(node, types, [])] == [
        ("https://api.demo.io", "credential_default")
    ]
    found = endpoints_of(node, types, ["${credentials.url}/v2"])
    assert [(e.url, e.origin, e.is_template) for e in found] == [
        ("${credentials.url}/v2", "literal", True),
        ("https://api.demo.io", "credential_default", False),
    ]
