"""The CrewAI documentation: an overview of categories, a page per category, a page per tool.

The overview's cards lead to categories and, under "Quick Access", once more to some tools. Category
cards lead to tools. Each tool page names its class in an import from ``crewai_tools``; its lead and its
"Description" section say what it does. The sidebar lists everything; switchers lead to four
languages and to older versions, which a crawler leaves alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.standin.mintlify import Block, Card, Cards, Code, H, Items, Note, P, Page, Site

ROOT = "/en/tools"
LANGUAGES = ("en", "pt-BR", "ko", "ar")
VERSIONS = ("v1.15.30", "v1.15.29", "v1.14.0", "v1.0.0")


def _category(slug: str, lead: str, cards: Sequence[Card], code: str = "") -> Page:
    blocks: list[Block] = [P(lead), H(2, "**Available Tools**"), Cards(cards)]
    blocks += [
        H(2, "**Common Use Cases**"),
        Items(["**Research**: look things up", "**Reports**: write them down"]),
    ]
    if code:
        blocks.append(Code("python", code))
    return Page(f"{ROOT}/{slug}/overview", "Overview", lead, blocks)


OVERVIEW = Page(
    f"{ROOT}/overview",
    "Tools Overview",
    "Browse the 40+ tools an agent may use",
    [
        P("The library holds ready-made tools, from files to web pages."),
        H(2, "**Tool Categories**"),
        Cards(
            [
                Card(
                    "File & Document", f"{ROOT}/file-document/overview", "Read and write files.", "file-check"
                ),
                Card(
                    "Search & Research",
                    f"{ROOT}/search-research/overview",
                    "Search the web.",
                    "magnifying-glass",
                ),
                Card("Web Scraping & Browsing", f"{ROOT}/web-scraping/overview", "Read web pages.", "globe"),
                Card("AI & Machine Learning", f"{ROOT}/ai-ml/overview", "Pictures and code.", "brain"),
                Card("Cloud & Storage", f"{ROOT}/cloud-storage/overview", "Buckets.", "cloud"),
            ]
        ),
        H(2, "**Quick Access**"),
        P("Need a specific tool? Some popular ones:"),
        Cards(
            [
                Card("Scroll Read", f"{ROOT}/file-document/scrollreadtool", "Read any file type", "file"),
                Card("Kestrel Search", f"{ROOT}/search-research/kestrelsearchtool", "Web search API", "book"),
                Card("Sandpit", f"{ROOT}/ai-ml/sandpittool", "Run Python code", "code"),
            ],
            cols=3,
        ),
        H(2, "**Getting Started**"),
        Code(
            "python",
            "from crewai_tools import ScrollReadTool, KestrelSearchTool\n\nAgent(tools=[ScrollReadTool()])",
        ),
    ],
)

CATEGORIES: list[Page] = [
    _category(
        "file-document",
        "These tools let an agent work with files.",
        [
            Card("Scroll Read Tool", f"{ROOT}/file-document/scrollreadtool", "Read any file as text."),
            Card("Ledger CSV Search", f"{ROOT}/file-document/ledgercsvtool", "Search inside CSV files."),
            Card("Folio PDF Tool", f"{ROOT}/file-document/foliopdftool", "Write text into a PDF."),
            Card("Mill Table Tool", f"{ROOT}/file-document/milltabletool", "Turn tables into sums."),
        ],
        "from crewai_tools import ScrollReadTool, LedgerCSVSearchTool",
    ),
    _category(
        "search-research",
        "These tools let an agent look things up.",
        [
            Card(
                "Kestrel Search Tool", f"{ROOT}/search-research/kestrelsearchtool", "Web search with a key."
            ),
            Card("Osprey News Tool", f"{ROOT}/search-research/ospreynewstool", "Fresh news."),
            Card(
                "Kestrel Search Tool", f"{ROOT}/search-research/kestrelsearchtool", "Web search with a key."
            ),
            Card("Merlin Papers", f"{ROOT}/search-research/merlinpaperstool", "Papers and their authors."),
            Card("Wren Video Search", f"{ROOT}/search-research/wrenvideotool", "Find videos."),
        ],
    ),
    _category(
        "web-scraping",
        "These tools let an agent read web pages.",
        [
            Card(
                "Heron Scrape Tool", f"{ROOT}/web-scraping/heronscrapetool", "Text of a page.", linked=False
            ),
            Card("Heron Crawl Tool", f"{ROOT}/web-scraping/heroncrawltool", "Text of a site.", linked=False),
            Card("Stilt Browser", "https://stilt.example/crewai", "A browser in the cloud."),
        ],
    ),
    _category(
        "ai-ml",
        "These tools let an agent draw and compute.",
        [
            Card("Sandpit Tool", f"{ROOT}/ai-ml/sandpittool", "Run Python 3 code."),
            Card("Easel Tool", f"{ROOT}/ai-ml/easeltool", "Draw a picture from words."),
            Card("Quarry RAG Tool", f"{ROOT}/ai-ml/quarryragtool", "Answer from your own texts."),
        ],
    ),
    _category(
        "cloud-storage",
        "These tools let an agent use buckets.",
        [
            Card("Pail Reader", f"{ROOT}/cloud-storage/pailreadertool", "Read an object of a bucket."),
            Card("Pail Writer", f"{ROOT}/cloud-storage/pailwritertool", "Write an object into a bucket."),
        ],
    ),
]


def _tool(folder: str, slug: str, title: str, cls: str, lead: str, about: str, *more: Block) -> Page:
    blocks: list[Block] = [
        H(1, f"`{cls}`"),
        H(2, "Description"),
        P(about),
        H(2, "Installation"),
        P("To use it in a project, install the tools package:"),
        Code("shell", "pip install 'crewai[tools]'"),
        *more,
        H(2, "Example"),
        P("The following example shows how to initialize the tool:"),
        Code("python", f"from crewai_tools import {cls}\n\ntool = {cls}()", "Code"),
        H(2, "Arguments"),
        Items(["**query**: Required. What to look for.", "**limit**: Optional. Default is `10`."]),
    ]
    return Page(f"{ROOT}/{folder}/{slug}", title, lead, blocks)


TOOLS: list[Page] = [
    _tool(
        "file-document",
        "scrollreadtool",
        "Scroll Read",
        "ScrollReadTool",
        "The `ScrollReadTool` is designed to read files from the local file system.",
        "The ScrollReadTool reads a file of any kind and hands its text to the agent, page by page.",
    ),
    _tool(
        "file-document",
        "ledgercsvtool",
        "CSV RAG Search",
        "LedgerCSVSearchTool",
        "The `LedgerCSVSearchTool` is designed for searching within CSV files.",
        "This tool answers questions from the rows of a CSV file.",
        Note("Note", "**Experimental**: we are still working on this tool, so it may change."),
    ),
    Page(
        f"{ROOT}/file-document/foliopdftool",
        "PDF Text Writing Tool",
        "The `FolioPDFTool` writes text to specific positions in a PDF document.",
        [
            # No "Description" section, a code fence first, and a helper imported before the class.
            Code("shell", "uv add crewai-tools pypdf"),
            H(1, "`FolioPDFTool`"),
            P("FolioPDFTool places lines of text on a page of a PDF, in a font and colour you choose."),
            Code(
                "python",
                "from crewai import Agent\nfrom crewai_tools import adapters, FolioPDFTool\n\nFolioPDFTool()",
            ),
        ],
    ),
    _tool(
        "search-research",
        "kestrelsearchtool",
        "Google Kestrel Search",
        "KestrelSearchTool",
        "The `KestrelSearchTool` is designed to search the internet and return the most relevant results.",
        "This tool searches the web through the kestrel.example API and returns titles, links and snippets.",
        Code("shell", 'export KESTREL_API_KEY="your-key"'),
    ),
    _tool(
        "search-research",
        "ospreynewstool",
        "Osprey News",
        "OspreyNewsTool",
        "Find news of the last hours with `OspreyNewsTool`.",
        "OspreyNewsTool finds news of the last hours and groups reports of the same event.",
        Note(
            "Warning",
            "Deprecated. Use [Kestrel Search](/en/tools/search-research/kestrelsearchtool) instead.",
        ),
    ),
    # Documented still, but gone from the package and from the specification file.
    _tool(
        "search-research",
        "merlinpaperstool",
        "Merlin Papers",
        "MerlinPapersTool",
        "The `MerlinPapersTool` searches scientific papers.",
        "MerlinPapersTool searches scientific papers and downloads them where that is allowed.",
    ),
    _tool(
        "web-scraping",
        "heronscrapetool",
        "Heron Scrape Website",
        "HeronScrapeTool",
        "The `HeronScrapeTool` extracts the text of a website.",
        "HeronScrapeTool fetches one web page and returns its text without the markup.",
    ),
    _tool(
        "web-scraping",
        "heroncrawltool",
        "Heron Crawl Website",
        "HeronCrawlTool",
        "The `HeronCrawlTool` crawls whole websites.",
        "HeronCrawlTool follows the links of a website and returns the text of every page as Markdown.",
    ),
    _tool(
        "ai-ml",
        "sandpittool",
        "Code Sandpit",
        "SandpitTool",
        "The `SandpitTool` is a powerful tool for executing Python 3 code in an isolated environment.",
        "The `SandpitTool` lets agents run Python 3 code that they wrote themselves, inside a container.",
    ),
    Page(
        f"{ROOT}/ai-ml/easeltool",
        "Easel Tool",
        "The `EaselTool` is a powerful tool designed for generating images from textual descriptions.",
        [
            H(1, "`EaselTool`"),
            H(2, "Description"),
            # A badge first, as in a README; then the sentence.
            P("![downloads](https://img.shields.io/badge/downloads-12k-blue)"),
            P("EaselTool draws a picture from a sentence and returns its address."),
            Code(
                "python",
                "from crewai_tools import EaselTool\n\nAgent(tools=[EaselTool(size='small')])",
                "Code",
            ),
        ],
    ),
    _tool(
        "ai-ml",
        "quarryragtool",
        "Quarry RAG Tool",
        "QuarryRagTool",
        "The `QuarryRagTool` is a dynamic knowledge base tool.",
        "QuarryRagTool answers questions from texts you add to it.",
    ),
    _tool(
        "cloud-storage",
        "pailreadertool",
        "Pail Reader Tool",
        "PailReaderTool",
        "The `PailReaderTool` reads files from Pail buckets.",
        "PailReaderTool reads an object of a Pail bucket and returns its content as text.",
    ),
    _tool(
        "cloud-storage",
        "pailwritertool",
        "Pail Writer Tool",
        "PailWriterTool",
        "The `PailWriterTool` writes content to Pail buckets.",
        "PailWriterTool writes text into an object of a Pail bucket and returns its address.",
    ),
]

# Known addresses without such a page: wrenvideotool is a hard 404, milltabletool a soft one.

_NAMES = {
    "file-document": "File & Document",
    "search-research": "Search & Research",
    "web-scraping": "Web Scraping & Browsing",
    "ai-ml": "AI & Machine Learning",
    "cloud-storage": "Cloud & Storage",
}

SITE = Site(
    "CrewAI",
    f"{ROOT}/overview",
    (
        ("Getting Started", (("Introduction", "/en/introduction"), ("Installation", "/en/installation"))),
        ("Tools", (("Overview", f"{ROOT}/overview"),)),
        *(
            (
                name,
                (
                    ("Overview", f"{ROOT}/{folder}/overview"),
                    *((p.title, p.path) for p in TOOLS if p.path.startswith(f"{ROOT}/{folder}/")),
                ),
            )
            for folder, name in _NAMES.items()
        ),
        ("Observability", (("Tracing", "/en/observability/tracing"),)),
    ),
    languages=tuple((code, f"/{code}/tools/overview") for code in LANGUAGES),
    versions=tuple((v, f"/{v}/en/tools/overview") for v in VERSIONS),
)


def _schema(title: str, *params: str) -> dict[str, object]:
    return {
        "title": title,
        "type": "object",
        "properties": {p: {"title": p.title(), "type": "string", "description": f"The {p}."} for p in params},
        "required": list(params[:1]),
    }


def _env(name: str, required: bool = True) -> dict[str, object]:
    return {"name": name, "description": f"Key {name}", "required": required, "default": None}


def _spec(
    name: str, shown: str, text: object, *params: str, env: object = (), needs: object = ()
) -> dict[str, object]:
    return {
        "description": text,
        "env_vars": list(env) if isinstance(env, tuple) else env,
        "humanized_name": shown,
        "init_params_schema": {"$defs": {"EnvVar": {"type": "object"}}, **_schema(name, "config")},
        "name": name,
        "package_dependencies": list(needs) if isinstance(needs, tuple) else needs,
        "run_params_schema": _schema(f"{name}Input", *params),
    }


SPECS: dict[str, object] = {
    "tools": [
        _spec("ScrollReadTool", "Read a file's content", "Reads a file and returns its text.", "file_path"),
        _spec(
            "LedgerCSVSearchTool",
            "Search a CSV's content",
            "Searches the rows of a CSV file.",
            "search_query",
            "csv",
        ),
        _spec(
            "FolioPDFTool",
            "PDF Text Writing Tool",
            "Writes text into a PDF.",
            "pdf_path",
            "text",
            needs=("pypdf",),
        ),
        _spec(
            "KestrelSearchTool",
            "Search the internet with Kestrel",
            "Searches the web through the Kestrel API.",
            "search_query",
            env=(_env("KESTREL_API_KEY"),),
        ),
        _spec(
            "OspreyNewsTool",
            "Osprey News",
            "Finds news of the last hours.",
            "topic",
            env=(_env("OSPREY_KEY"), _env("OSPREY_REGION", required=False)),
        ),
        _spec("HeronScrapeTool", "Read website content", "", "website_url"),
        _spec("HeronCrawlTool", "Heron web crawl tool", "   ", "url", env=(_env("HERON_API_KEY"),)),
        _spec("SandpitTool", "Code Sandpit", "Interprets Python 3 code strings.", "code", "libraries_used"),
        _spec("EaselTool", "Easel Tool", "Draws a picture from a sentence.", "image_description"),
        _spec("QuarryRagTool", "Knowledge base", "Answers questions from your own texts.", "query"),
        _spec("QuarryRagTool", "Knowledge base", "Answers questions from your own texts, again.", "query"),
        _spec("PailReaderTool", "Pail Reader Tool", "Reads an object of a bucket.", "file_path"),
        _spec(
            "PailWriterTool", "Pail Writer Tool", "Writes an object into a bucket.", "file_path", "content"
        ),
        _spec("AuroraOnlyTool", "Aurora", "Forecasts northern lights. Nobody documents it.", "place"),
        {"name": "BareTool", "description": "Only a name and a text."},
        {"humanized_name": "Nameless", "description": "Has no name at all."},
        _spec("TwistedTool", "Twisted", ["not", "a", "text"], "x", env="KEY", needs={"a": 1}),
        None,
        "a string among the tools",
    ]
}
"""``tool.specs.json``: two empty texts, a name twice, entries without fields, of wrong types, of no type."""
