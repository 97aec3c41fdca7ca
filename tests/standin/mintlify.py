"""Pages as the Mintlify theme renders them, as HTML and as the ``.md`` variant of the same page.

A page is a list of blocks. The markup follows the rendered sites: ``span[data-as=p]`` paragraphs,
headings with an anchor, a zero-width space and a span, Shiki code blocks with a line per span and a
copy button, cards that are links (or, in newer builds, ``div[role=link]`` without an address), theme
chrome around ``#content-area`` and the page's own source once more inside a script.
"""

# ruff: noqa: E501 (markup is kept on the lines it comes on)

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class P:
    """A paragraph in Markdown inline syntax."""

    text: str


@dataclass(frozen=True)
class Quote:
    """A block quote of one paragraph."""

    text: str


@dataclass(frozen=True)
class H:
    """A heading of level 1 to 4."""

    level: int
    text: str


@dataclass(frozen=True)
class Code:
    """A code block; ``title`` is what stands after the language in the fence."""

    lang: str
    text: str
    title: str = ""


@dataclass(frozen=True)
class Table:
    """A table; cells in Markdown inline syntax, or ready HTML where they begin with ``<``."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    wrap: str = ""


@dataclass(frozen=True)
class Card:
    """A card. ``linked`` false: rendered as a ``div[role=link]`` without an address."""

    title: str
    href: str
    text: str = ""
    icon: str = "link"
    linked: bool = True


@dataclass(frozen=True)
class Cards:
    """A group of cards."""

    cards: Sequence[Card]
    cols: int = 2


@dataclass(frozen=True)
class Note:
    """A callout: Note, Warning, Info or Tip."""

    kind: str
    text: str


@dataclass(frozen=True)
class Items:
    """A bulleted list."""

    items: Sequence[str]


Block = P | Quote | H | Code | Table | Card | Cards | Note | Items


@dataclass(frozen=True)
class Page:
    """One page of a documentation site."""

    path: str
    title: str
    description: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Site:
    """What surrounds every page: name, groups of navigation, switchers."""

    name: str
    home: str
    groups: Sequence[tuple[str, Sequence[tuple[str, str]]]]
    languages: Sequence[tuple[str, str]] = ()
    versions: Sequence[tuple[str, str]] = ()
    base: str = ""
    extra_head: str = field(default="")


def inline(text: str) -> str:
    """Markdown inline syntax as the theme's HTML. Text that begins with ``<`` is HTML already."""
    if text.startswith("<"):
        return text
    kept: list[str] = []

    def keep(markup: str) -> str:
        kept.append(markup)
        return f"\x00{len(kept) - 1}\x00"

    def image(match: re.Match[str]) -> str:
        alt, src = html.escape(match[1]), html.escape(match[2])
        return keep(f'<img src="{src}" alt="{alt}" class="rounded not-prose" data-path="{src}"/>')

    def link(match: re.Match[str]) -> str:
        inner, href = inline(match[1]), html.escape(match[2])
        rel = ' target="_blank" rel="noreferrer"' if href.startswith("http") else ""
        return keep(f'<a class="link" href="{href}"{rel}>{inner}</a>')

    text = re.sub(r"!\[([^\]]*)\]\(([^)\s]*)\)", image, text)
    text = re.sub(r"\[([^\]]*)\]\(([^)]*)\)", link, text)
    text = re.sub(r"`([^`]+)`", lambda m: keep(f"<code>{html.escape(m[1])}</code>"), text)
    text = html.escape(text, quote=False)
    text = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)
    while "\x00" in text:
        text = re.sub(r"\x00(\d+)\x00", lambda m: kept[int(m[1])], text)
    return text


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _heading(block: H) -> str:
    slug, level = _slug(block.text), block.level
    return (
        f'<h{level} class="flex whitespace-pre-wrap group font-semibold" id="{slug}">'
        f'<div class="absolute" tabindex="-1"><a href="#{slug}" class="-ml-10 flex items-center opacity-0" '
        f'aria-label="Navigate to header">\u200b<div class="w-6 h-6"><svg></svg></div></a></div>'
        f'<span class="cursor-pointer">{inline(block.text)}</span></h{level}>'
    )


def _code(block: Code) -> str:
    lines = "\n".join(
        f'<span class="line"><span style="color:#24292F">{html.escape(line)}</span></span>'
        for line in block.text.split("\n")
    )
    header = (
        f'<div data-component-part="code-block-header">{html.escape(block.title)}</div>'
        if block.title
        else ""
    )
    return (
        f'<div class="code-block mt-5 mb-8 not-prose rounded-2xl relative group" language="{block.lang}">{header}'
        '<div class="absolute" data-floating-buttons="true"><button aria-label="Copy the contents from the code '
        'block"><svg></svg></button><div class="tooltip">Copy</div><button>Ask AI</button></div>'
        f'<div class="w-0 min-w-full" data-component-part="code-block-root"><pre class="shiki shiki-themes" '
        f'language="{block.lang}"><code language="{block.lang}" numberoflines="{len(block.text.splitlines())}">'
        f"{lines}\n</code></pre></div></div>"
    )


def _table(block: Table) -> str:
    head = "".join(f'<th data-numeric="false">{inline(c)}</th>' for c in block.head)
    rows = "".join(
        "<tr>" + "".join(f'<td data-numeric="false">{inline(c)}</td>' for c in row) + "</tr>"
        for row in block.rows
    )
    table = (
        '<div class="overflow-x-auto default-padding-left" data-table-wrapper="true"><table class="m-0 min-w-full '
        f'w-max max-w-none"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )
    return f'<div class="{block.wrap}">{table}</div>' if block.wrap else table


def _card(block: Card) -> str:
    title = (
        '<div class="px-6 py-5 relative" data-component-part="card-content-container"><div aria-hidden="true" '
        f'data-component-part="card-icon"><svg class="{block.icon}"></svg></div><div class="w-full"><h2 '
        'class="not-prose font-semibold text-base text-gray-800 mt-4" data-component-part="card-title">'
        f'{html.escape(block.title)}</h2><div class="prose mt-1 font-normal text-base leading-6 text-gray-600" '
        f'data-component-part="card-content">'
        + (f'<span data-as="p">{inline(block.text)}</span>' if block.text else "")
        + "</div></div></div>"
    )
    look = (
        "card block font-normal group relative my-2 ring-2 ring-transparent rounded-2xl border cursor-pointer"
    )
    if block.linked:
        return f'<a class="{look}" href="{html.escape(block.href)}">{title}</a>'
    return f'<div class="{look}" role="link" tabindex="0">{title}</div>'


def block_html(block: Block) -> str:
    """One block as HTML."""
    match block:
        case P():
            return f'<span data-as="p">{inline(block.text)}</span>'
        case Quote():
            return f'<blockquote><span data-as="p">{inline(block.text)}</span></blockquote>'
        case H():
            return _heading(block)
        case Code():
            return _code(block)
        case Table():
            return _table(block)
        case Card():
            return _card(block)
        case Cards():
            inner = "".join(_card(c) for c in block.cards)
            return f'<div class="card-group columns prose grid max-w-none gap-4" style="--cols:{block.cols}">{inner}</div>'
        case Note():
            return (
                f'<div class="callout my-4 px-5 py-4 overflow-hidden rounded-2xl flex gap-3 border" role="note" '
                f'aria-label="{block.kind}" data-callout-type="{block.kind.lower()}"><div '
                'data-component-part="callout-icon"><svg></svg></div><div class="text-sm prose min-w-0 w-full" '
                f'data-component-part="callout-content"><span data-as="p">{inline(block.text)}</span></div></div>'
            )
        case Items():
            return "<ul>" + "".join(f"<li>{inline(i)}</li>" for i in block.items) + "</ul>"


def block_md(block: Block) -> str:
    """One block as the Markdown variant of a page has it."""
    match block:
        case P():
            return block.text
        case Quote():
            return f"> {block.text}"
        case H():
            return f"{'#' * block.level} {block.text}"
        case Code():
            info = f"{block.lang} {block.title}".strip()
            return f"```{info} theme={{null}}\n{block.text}\n```"
        case Table():
            head = "| " + " | ".join(block.head) + " |\n| " + " | ".join(":---" for _ in block.head) + " |"
            body = "\n".join("| " + " | ".join(r) + " |" for r in block.rows)
            table = f"{head}\n{body}"
            return f'<div className="{block.wrap}">\n{table}\n</div>' if block.wrap else table
        case Card():
            head = f'<Card title="{html.escape(block.title)}" icon="{block.icon}" href="{block.href}"'
            return f"{head}>\n  {block.text}\n</Card>" if block.text else f'{head} arrow="true" />'
        case Cards():
            inner = "\n\n  ".join(block_md(c).replace("\n", "\n  ") for c in block.cards)
            return f"<CardGroup cols={{{block.cols}}}>\n  {inner}\n</CardGroup>"
        case Note():
            return f"<{block.kind}>\n  {block.text}\n</{block.kind}>"
        case Items():
            return "\n".join(f"* {i}" for i in block.items)


def markdown(page: Page, site: Site) -> str:
    """The page's ``.md`` variant."""
    intro = (
        f"> ## Documentation Index\n> Fetch the complete documentation index at: {site.base}/llms.txt\n"
        "> Use this file to discover all available pages before exploring further.\n"
    )
    lead = f"\n> {page.description}\n" if page.description else ""
    return f"{intro}\n# {page.title}\n{lead}\n" + "\n\n".join(block_md(b) for b in page.blocks) + "\n"


def _chrome(site: Site, here: str) -> tuple[str, str]:
    groups = "".join(
        f'<div class="my-2"><div class="sidebar-group-header"><h3 id="sidebar-title">{html.escape(name)}</h3></div>'
        '<ul class="sidebar-group space-y-px">'
        + "".join(
            f'<li id="{href}" class="relative scroll-m-4 first:scroll-m-20" data-title="{html.escape(title)}">'
            f'<a class="group flex items-center{" active" if href == here else ""}" href="{href}"><div '
            f'class="flex-1 flex items-center space-x-2.5"><div>{html.escape(title)}</div></div></a></li>'
            for title, href in links
        )
        + "</ul></div>"
        for name, links in site.groups
    )
    switch = "".join(f'<a role="menuitem" href="{href}">{label}</a>' for label, href in site.versions)
    speak = "".join(
        f'<a role="menuitem" lang="{href[1:3]}" href="{href}">{label}</a>' for label, href in site.languages
    )
    navbar = (
        '<a href="#content-area" class="sr-only">Skip to main content</a><div id="navbar"><a href="/"><span '
        f'class="sr-only">{site.name} home page</span><img class="nav-logo" alt="light logo" src="/logo.svg"/></a>'
        f'<div role="menu">{switch}{speak}</div><button id="search-bar-entry">Search...<span>⌘K</span></button>'
        '<ul><li><a href="https://github.com/example/docs">GitHub</a></li><li><a '
        'href="https://app.example.com/signup">Try it</a></li></ul></div>'
    )
    sidebar = (
        f'<div id="sidebar"><div id="sidebar-content"><nav id="navigation-items">{groups}</nav></div></div>'
    )
    return navbar, sidebar


def render(page: Page, site: Site) -> str:
    """The page as HTML."""
    navbar, sidebar = _chrome(site, page.path)
    body = "".join(block_html(b) for b in page.blocks)
    toc = "".join(
        f'<li class="toc-item" data-depth="{b.level - 2}"><a href="#{_slug(b.text)}">{html.escape(b.text)}</a></li>'
        for b in page.blocks
        if isinstance(b, H)
    )
    lead = (
        f'<div class="mt-2 text-lg prose"><p>{inline(page.description)}</p></div>' if page.description else ""
    )
    source = json.dumps("\n\n".join(block_md(b) for b in page.blocks)).replace("</", "<\\/")
    return f"""<!DOCTYPE html><html lang="en" class="dark" data-page-mode="none"><head><meta charSet="utf-8"/>\
<meta name="viewport" content="width=device-width, initial-scale=1"/>\
<title>{html.escape(page.title)} - {site.name}</title>\
<meta name="description" content="{html.escape(page.description)}"/>\
<meta property="og:site_name" content="{site.name}"/>\
<link rel="canonical" href="https://docs.example.com{page.path}"/>\
<link rel="alternate" type="text/markdown" href="{page.path}.md"/>{site.extra_head}\
<style>:root {{ --primary: 22 110 125; }} h1 {{ color: red }}</style></head><body>\
<script>(function a(b){{document.documentElement.classList.add("dark")}})("/docs")</script>\
<div class="relative antialiased">{navbar}{sidebar}\
<div id="content-container"><div id="content-area" class="relative grow box-border flex-col w-full mx-auto">\
<header id="header" class="relative"><div class="eyebrow h-5 text-primary text-sm font-semibold">{site.name}</div>\
<div class="relative flex items-center"><h1 id="page-title" class="inline-block text-2xl tracking-tight">\
{html.escape(page.title)}</h1></div><div id="page-context-menu"><button>Copy page</button></div>{lead}</header>\
<div class="mdx-content relative mt-8 mb-14 prose prose-gray" id="content">{body}</div>\
<div id="feedback"><p>Was this page helpful?</p><button>Yes</button><button>No</button></div>\
<div id="pagination"><a href="{site.home}">Previous</a></div></div>\
<div id="table-of-contents"><button>On this page</button><ul id="table-of-contents-content">{toc}</ul></div>\
</div><footer id="footer"><a href="https://x.example.com/docs">x</a><a href="https://mintlify.example">Powered by</a>\
</footer></div><script>self.__next_f=self.__next_f||[];self.__next_f.push([1,{source}])</script></body></html>"""


def not_found(name: str) -> str:
    """The sites' own page for an address they do not have. They send it with status 200 too."""
    site = Site(name, "/", (("Reference", (("Overview", "/overview"), ("All providers", "/providers"))),))
    navbar, sidebar = _chrome(site, "")
    return f"""<!DOCTYPE html><html lang="en"><head><meta charSet="utf-8"/><title>Page Not Found - {name}</title>\
<meta name="robots" content="noindex"/></head><body><div class="relative antialiased">{navbar}\
<button>Navigation</button><div>Page Not Found</div>{sidebar}<div id="content-container"><div \
class="flex flex-col items-center"><span class="inline-flex rounded-full">404</span>\
<h1 id="error-title">Page not found</h1><p id="error-description">We couldn\u2019t find the page. Maybe one of these \
helps:</p><ul id="recommended-pages"><li><a href="/providers">All integration providers</a></li><li>\
<a href="/overview">Integration packages</a></li></ul></div></div></div>\
<script>self.__next_f=self.__next_f||[];self.__next_f.push([1,"404"])</script></body></html>"""


def llms_txt(name: str, pages: Sequence[Page], base: str) -> str:
    """A site's index for language models."""
    lines = [f"# {name}", "", "## Docs", ""]
    lines += [f"- [{p.title}]({base}{p.path}.md): {p.description}".rstrip(": ") for p in pages]
    return "\n".join(lines) + "\n"
