"""Bodies that try a parser's patience. None of them is an error of the transport."""

from __future__ import annotations

NESTING = 50_000
LINE_BYTES = 5 * 1024 * 1024
INDEX = "/oss/python/integrations/tools"


def _page(body: str, head: str = "") -> bytes:
    return (
        f"<!doctype html><html><head><title>Hostile</title>{head}</head><body>{body}</body></html>".encode()
    )


def _row(name: str, href: str) -> str:
    return f'<tr><td><a href="{href}">{name}</a></td><td>Free</td><td>Text</td></tr>'


def table(rows: str) -> str:
    """A table of tools as the LangChain index has it."""
    head = "<thead><tr><th>Tool/Toolkit</th><th>Free/Paid</th><th>Return Data</th></tr></thead>"
    return f'<div id="content-area"><table>{head}<tbody>{rows}</tbody></table></div>'


def _unclosed() -> bytes:
    return (
        b'<!doctype html><html><body><div id="content-area"><table><tr><th>Tool/Toolkit<th>Pricing'
        b'<tr><td><a href="/oss/python/integrations/tools/alder">Alder</a><td>Free'
        b'<tr><td><a href="/oss/python/integrations/tools/birch">Birch<td>Paid<p>no end <b>at <i>all'
    )


def _links() -> bytes:
    hrefs = [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "data:text/html,<h1>Tool</h1>",
        "vbscript:x",
        "file:///etc/passwd",
        "mailto:someone@example.com",
        "//elsewhere.example/tools/protocol-relative",
        "https://elsewhere.example/tools/absolute",
        "http://169.254.169.254/latest/meta-data/",
        "http://user:secret@127.0.0.1:1/tools/userinfo",
        "../../../../../../etc/passwd",
        "./tools/../tools/dotted",
        "tools/relative",
        "?page=2",
        "#search",
        "",
        " /oss/python/integrations/tools/blanks ",
        "/oss/python/integrations/tools/a%2e%2e%2fb",
        "http://[::1",
        "https://exa mple.com/blank",
        "/oss/python/integrations/tools/\u202egnp.exe",
    ]
    return _page(table("".join(_row(f"Link {i}", h) for i, h in enumerate(hrefs))))


def _controls() -> bytes:
    names = [
        "Plain\x00Null",
        "Bell\x07Tool",
        "\u202eloot desreveR\u202c",
        "Zero\u200bWidth\u2060Joiner",
        "Line\u2028Separator",
        "Tab\tand\nnewline",
        "\ufeffBom First",
        "\U000e0041\U000e0042Tagged",
        "A" * 10_000,
        "",
        "   ",
    ]
    return _page(table("".join(_row(n, f"{INDEX}/c{i}") for i, n in enumerate(names))))


def _entities() -> bytes:
    layers = "".join(f'<!ENTITY e{i + 1} "{f"&e{i};" * 10}">' for i in range(9))
    bomb = f'<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY e0 "ha">{layers}]><html><body>&e9;'
    return (bomb + table(_row("Elm &amp; Co &#x26; &lt;b&gt; &nosuch; &#1114112;", f"{INDEX}/elm"))).encode()


def _script_rows() -> bytes:
    script = _row("Script Tool", f"{INDEX}/script_tool")
    escaped = script.replace('"', '\\"')
    return _page(
        f'<script>self.__next_f.push([1,"{escaped}"])</script>'
        f"<script type='text/template'>{table(script)}</script>"
        f"<noscript>{table(_row('Noscript Tool', INDEX + '/noscript_tool'))}</noscript>"
        f"<!-- {_row('Comment Tool', INDEX + '/comment_tool')} -->"
        f"<template>{table(_row('Template Tool', INDEX + '/template_tool'))}</template>"
        f"<style>/* {_row('Style Tool', INDEX + '/style_tool')} */</style>"
        f"<textarea>{_row('Textarea Tool', INDEX + '/textarea_tool')}</textarea>"
        + table(_row("Real Tool", f"{INDEX}/real_tool"))
    )


def _duplicates() -> bytes:
    return _page(table(_row("Twice Tool", f"{INDEX}/twice") * 500 + _row("twice tool ", f"{INDEX}/twice/")))


def _tables() -> bytes:
    """Tables in tables, cells that span, rows short and long, a header in the body."""
    inner = f"<table><tr><td>{_row('Inner Tool', INDEX + '/inner')}</td></tr></table>"
    return _page(
        table(
            '<tr><th colspan="3">Tool/Toolkit</th></tr>'
            f'<tr><td rowspan="3" colspan="99999999"><a href="{INDEX}/span">Span Tool</a></td></tr>'
            "<tr></tr><tr><td></td></tr>" + inner + _row("Outer Tool", INDEX + "/outer")
        )
    )


BODIES: dict[str, tuple[bytes, str | None]] = {
    "unclosed": (_unclosed(), "text/html; charset=utf-8"),
    "links": (_links(), "text/html; charset=utf-8"),
    "controls": (_controls(), "text/html; charset=utf-8"),
    "entities": (_entities(), "text/html; charset=utf-8"),
    "script-rows": (_script_rows(), "text/html; charset=utf-8"),
    "duplicates": (_duplicates(), "text/html; charset=utf-8"),
    "tables": (_tables(), "text/html; charset=utf-8"),
    "nulls": (b"<html><body>\x00\x00<table>\x00<tr>\x00</table>\x00" * 200, "text/html"),
    "not-utf8": (b"<html><body><p>\xff\xfe\x80\x81</p></body></html>", "text/html; charset=utf-8"),
    "html-as-json": (b"<html><body>Bad gateway</body></html>", "application/json"),
    "json-as-html": (b'{"data": [], "meta": {}}', "text/html; charset=utf-8"),
    "json-cut": (b'{"tools": [{"name": "Half', "application/json"),
    "json-deep": (b"[" * 100_000 + b"]" * 100_000, "application/json"),
    "json-null": (b"null", "application/json"),
    "json-numbers": (
        b'{"tools": 7, "data": "x", "meta": {"pagination": {"pageCount": 1e308}}}',
        "application/json",
    ),
    "json-nan": (b'{"data": [NaN, Infinity], "total": -Infinity}', "application/json"),
    "json-surrogate": (
        b'{"tools": [{"name": "\\ud800", "description": "\\udfff lone"}]}',
        "application/json",
    ),
    "json-bom": (b'\xef\xbb\xbf{"tools": []}', "application/json"),
    "no-type": (b"<html><body><p>No type given</p></body></html>", None),
    "binary": (bytes(range(256)) * 64, "application/octet-stream"),
    "empty": (b"", "text/html; charset=utf-8"),
    "blank": (b" \n\t ", "text/html; charset=utf-8"),
}
"""Small bodies by name: body and content type. Served under ``/hostile/NAME``."""


def deep(tag: str = "div") -> bytes:
    """A page nested ``NESTING`` deep, with one row at the bottom."""
    row = table(_row("Deep Tool", f"{INDEX}/deep_tool"))
    return _page(f"<{tag}>" * NESTING + row + f"</{tag}>" * NESTING)


def one_line() -> bytes:
    """A page on one line of 5 MB, with one row at its end."""
    return _page("<p>" + "word " * (LINE_BYTES // 5) + "</p>" + table(_row("Far Tool", f"{INDEX}/far_tool")))
