"""What a careful human reads from the stand-in's pages. Written by hand, apart from pages and parsers.

Keys of an entry:
- ``name``: as the listing shows it; ``title`` of the tool's own page where it differs much.
- ``docs_url``: path on the stand-in, or the address elsewhere, or none.
- ``package``, ``classes``: what must be installed, what is imported from it.
- ``description``: one text, or none where the pages give none. Never boilerplate, code, badges or notices.
- ``row``: what the listing's own row says the tool does; as fair a description as the page's.
- ``dead``: none, or why the page cannot be had (words of ``WebError.reason``; ``empty`` for an empty page,
  ``external`` for a page elsewhere that is not fetched, ``no_link`` for a row without a usable link).
- ``optional``: a reader may list it or leave it out.
"""

from __future__ import annotations

from typing import Any

from tests.standin.truth_npm import N8N_VERIFIED, NPM_GOOD

Entry = dict[str, Any]
LC = "/oss/python/integrations/tools"
CR = "/en/tools"


def _lc(
    name: str,
    docs_url: str | None,
    package: str | None,
    classes: tuple[str, ...] = (),
    description: str | None = None,
    **more: Any,
) -> Entry:
    made = {"dead": None, "deprecated": False, "replacement": None, "optional": False, "final_url": docs_url}
    return {
        "name": name,
        "docs_url": docs_url,
        "package": package,
        "classes": list(classes),
        "description": description,
        **made,
        **more,
    }


LANGCHAIN: list[Entry] = [
    _lc(
        "Quillseek Search",
        f"{LC}/quillseek_search",
        "langchain-quillseek",
        ("QuillseekSearchTool",),
        "Quillseek is a search engine for essays and long articles. "
        "It returns passages with their author and date.",
    ),
    _lc(
        "Harbor Web Search",
        "https://docs.harborsearch.example/langchain",
        "langchain-harbor",
        dead="external",
    ),
    _lc("Tidepool Search", f"{LC}/tidepool_search", "langchain-tidepool", dead="not_found"),
    _lc("Lanternfish Search", f"{LC}/lanternfish_search", None, dead="soft_404"),
    _lc(
        "Fennel & Rye Search",
        f"{LC}/fennel_rye",
        "langchain-fennel-rye",
        ("FennelRyeSearch",),
        "Fennel & Rye finds recipes by what is in the cupboard, and says what is missing.",
    ),
    _lc(
        "Pebble Sandbox",
        f"{LC}/pebble_sandbox",
        "langchain-pebble",
        ("PebbleSandboxTool",),
        "Pebble runs Python or JavaScript in a throw-away container and returns text and pictures.",
    ),
    _lc(
        "Inkmail Toolkit",
        f"{LC}/inkmail",
        "langchain-inkmail",
        ("InkmailToolkit",),
        "The Inkmail toolkit reads, drafts and sends letters of an Inkmail account.",
    ),
    _lc(
        "Gridnote Toolkit",
        f"{LC}/gridnote",
        "langchain-community",
        ("GridnoteToolkit",),
        "Gridnote keeps notes in a grid; the toolkit adds, moves and finds them.",
        deprecated=True,
        replacement="Inkmail toolkit",
    ),
    _lc(
        "Brightlane Browser",
        f"{LC}/brightlane",
        "langchain-brightlane",
        ("BrightlaneBrowser",),
        "Brightlane drives a real browser for an agent, past pop-ups and captchas.",
    ),
    # Same page, another section. A reader who takes a page for a tool sees the browser only.
    _lc(
        "Brightlane Unlocker",
        f"{LC}/brightlane#unlocker",
        "langchain-brightlane",
        ("BrightlaneUnlocker",),
        "The unlocker fetches one page that hides behind a wall and returns its text.",
        optional=True,
    ),
    _lc(
        "Ledger SQL Toolkit",
        f"{LC}/ledger_sql",
        "langchain-ledger",
        ("LedgerSQLToolkit",),
        "The Ledger toolkit asks questions of a Ledger database in SQL and lists its tables.",
    ),
    _lc("Grafwald Toolkit", f"{LC}/grafwald", None, dead="gone"),
    _lc(
        "Coinherd",
        f"{LC}/coinherd",
        "coinherd-langchain",
        ("CoinherdPrices",),
        "Coinherd reads the prices of coins and tokens from many exchanges.",
        row="Read prices of coins and tokens.",
    ),
    _lc(
        "Mintleaf Payments",
        f"{LC}/mintleaf",
        "langchain-mintleaf",
        ("MintleafInvoiceTool", "MintleafStatusTool"),
        "Mintleaf sends an invoice and follows its payment.",
        row="Send an invoice and follow its payment.",
    ),
    _lc("Omnibridge", f"{LC}/internal/omnibridge", None, dead="robots"),
    # The row itself says what it does; a reader may take that or leave it.
    _lc(
        "Wardstone URL Check",
        "https://wardstone.example",
        None,
        dead="external",
        row="Say whether a link is safe.",
    ),
    _lc("Popup Shield", None, None, dead="no_link", optional=True),
    _lc("Stapler (coming soon)", None, None, dead="no_link", optional=True),
    _lc("Paintbox Image", f"{LC}/paintbox_image", None, dead="other_host"),
    _lc(
        "Paintbox Video",
        f"{LC}/paintbox_legacy",
        None,
        (),
        "Paintbox video makes a short film from a sentence.",
        row="Short films from text.",
        final_url=f"{LC}/paintbox_video",
    ),
    _lc("Saltmarsh weather", f"{LC}/saltmarsh", "langchain-saltmarsh", ("SaltmarshWeather",)),
    _lc("Hollow lantern", f"{LC}/hollow", "langchain-hollow", dead="empty"),
]

NOT_LANGCHAIN = [
    "Supported",
    "✅",
    "Tools and toolkits",
    "Acme",
    "Chat models",
    "sources",
    "limits",
    "JS support",
]
"""Texts of the index and pages that are no tools."""


def _cr(
    cls: str, name: str, path: str, category: str, description: str | None, lead: str | None, **more: Any
) -> Entry:
    made = {"dead": None, "deprecated": False, "replacement": None, "optional": False, "in_specs": True}
    return {
        "class": cls,
        "name": name,
        "docs_url": f"{CR}/{path}",
        "category": category,
        "description": description,
        "lead": lead,
        **made,
        **more,
    }


CREWAI: list[Entry] = [
    _cr(
        "ScrollReadTool",
        "Scroll Read",
        "file-document/scrollreadtool",
        "file-document",
        "The ScrollReadTool reads a file of any kind and hands its text to the agent, page by page.",
        "The ScrollReadTool is designed to read files from the local file system.",
    ),
    _cr(
        "LedgerCSVSearchTool",
        "CSV RAG Search",
        "file-document/ledgercsvtool",
        "file-document",
        "This tool answers questions from the rows of a CSV file.",
        "The LedgerCSVSearchTool is designed for searching within CSV files.",
    ),
    _cr(
        "FolioPDFTool",
        "PDF Text Writing Tool",
        "file-document/foliopdftool",
        "file-document",
        "FolioPDFTool places lines of text on a page of a PDF, in a font and colour you choose.",
        "The FolioPDFTool writes text to specific positions in a PDF document.",
    ),
    _cr(
        "",
        "Mill Table Tool",
        "file-document/milltabletool",
        "file-document",
        None,
        None,
        dead="soft_404",
        in_specs=False,
    ),
    _cr(
        "KestrelSearchTool",
        "Google Kestrel Search",
        "search-research/kestrelsearchtool",
        "search-research",
        "This tool searches the web through the kestrel.example API and returns titles, links and snippets.",
        "The KestrelSearchTool is designed to search the internet and return the most relevant results.",
    ),
    _cr(
        "OspreyNewsTool",
        "Osprey News",
        "search-research/ospreynewstool",
        "search-research",
        "OspreyNewsTool finds news of the last hours and groups reports of the same event.",
        "Find news of the last hours with OspreyNewsTool.",
        deprecated=True,
        replacement="Kestrel Search",
    ),
    # Documented, but no longer in the package: known to the docs alone.
    _cr(
        "MerlinPapersTool",
        "Merlin Papers",
        "search-research/merlinpaperstool",
        "search-research",
        "MerlinPapersTool searches scientific papers and downloads them where that is allowed.",
        "The MerlinPapersTool searches scientific papers.",
        in_specs=False,
    ),
    _cr(
        "",
        "Wren Video Search",
        "search-research/wrenvideotool",
        "search-research",
        None,
        None,
        dead="not_found",
        in_specs=False,
    ),
    # Their cards carry no address; the sidebar does.
    _cr(
        "HeronScrapeTool",
        "Heron Scrape Website",
        "web-scraping/heronscrapetool",
        "web-scraping",
        "HeronScrapeTool fetches one web page and returns its text without the markup.",
        "The HeronScrapeTool extracts the text of a website.",
    ),
    _cr(
        "HeronCrawlTool",
        "Heron Crawl Website",
        "web-scraping/heroncrawltool",
        "web-scraping",
        "HeronCrawlTool follows the links of a website and returns the text of every page as Markdown.",
        "The HeronCrawlTool crawls whole websites.",
    ),
    _cr(
        "SandpitTool",
        "Code Sandpit",
        "ai-ml/sandpittool",
        "ai-ml",
        "The SandpitTool lets agents run Python 3 code that they wrote themselves, inside a container.",
        "The SandpitTool is a powerful tool for executing Python 3 code in an isolated environment.",
    ),
    _cr(
        "EaselTool",
        "Easel Tool",
        "ai-ml/easeltool",
        "ai-ml",
        "EaselTool draws a picture from a sentence and returns its address.",
        "The EaselTool is a powerful tool designed for generating images from textual descriptions.",
    ),
    _cr(
        "QuarryRagTool",
        "Quarry RAG Tool",
        "ai-ml/quarryragtool",
        "ai-ml",
        "QuarryRagTool answers questions from texts you add to it.",
        "The QuarryRagTool is a dynamic knowledge base tool.",
    ),
    _cr(
        "PailReaderTool",
        "Pail Reader Tool",
        "cloud-storage/pailreadertool",
        "cloud-storage",
        "PailReaderTool reads an object of a Pail bucket and returns its content as text.",
        "The PailReaderTool reads files from Pail buckets.",
    ),
    _cr(
        "PailWriterTool",
        "Pail Writer Tool",
        "cloud-storage/pailwritertool",
        "cloud-storage",
        "PailWriterTool writes text into an object of a Pail bucket and returns its address.",
        "The PailWriterTool writes content to Pail buckets.",
    ),
]
"""``description``: the page's "Description" section or first sentence; ``lead``: the line under the title.

Either is a fair description of the tool; a card's line is a third. Text from the specification file is
better than all of them where there is some.
"""

CREWAI_EXTERNAL = [{"name": "Stilt Browser", "docs_url": "https://stilt.example/crewai", "dead": "external"}]


def _spec(
    cls: str, name: str | None, description: str | None, params: str, env: str = "", **more: Any
) -> Entry:
    """``params`` and ``env``: names by blanks; an optional one ends in ``?``."""
    env_vars = [{"name": e.rstrip("?"), "required": not e.endswith("?")} for e in env.split()]
    base = {"class": cls, "name": name, "description": description, "params": params.split(), "env": env_vars}
    return {**base, "bad": None, **more}


CREWAI_SPECS: list[Entry] = [
    _spec("ScrollReadTool", "Read a file's content", "Reads a file and returns its text.", "file_path"),
    _spec(
        "LedgerCSVSearchTool",
        "Search a CSV's content",
        "Searches the rows of a CSV file.",
        "search_query csv",
    ),
    _spec("FolioPDFTool", "PDF Text Writing Tool", "Writes text into a PDF.", "pdf_path text"),
    _spec(
        "KestrelSearchTool",
        "Search the internet with Kestrel",
        "Searches the web through the Kestrel API.",
        "search_query",
        "KESTREL_API_KEY",
    ),
    _spec(
        "OspreyNewsTool", "Osprey News", "Finds news of the last hours.", "topic", "OSPREY_KEY OSPREY_REGION?"
    ),
    _spec("HeronScrapeTool", "Read website content", None, "website_url", bad="no_description"),
    _spec("HeronCrawlTool", "Heron web crawl tool", None, "url", "HERON_API_KEY", bad="no_description"),
    _spec("SandpitTool", "Code Sandpit", "Interprets Python 3 code strings.", "code libraries_used"),
    _spec("EaselTool", "Easel Tool", "Draws a picture from a sentence.", "image_description"),
    _spec("QuarryRagTool", "Knowledge base", "Answers questions from your own texts.", "query"),
    _spec("PailReaderTool", "Pail Reader Tool", "Reads an object of a bucket.", "file_path"),
    _spec("PailWriterTool", "Pail Writer Tool", "Writes an object into a bucket.", "file_path content"),
    _spec("AuroraOnlyTool", "Aurora", "Forecasts northern lights. Nobody documents it.", "place"),
    _spec("BareTool", None, "Only a name and a text.", ""),
    _spec("TwistedTool", "Twisted", None, "x", bad="wrong_types"),
]
"""The second ``QuarryRagTool`` is a duplicate; an entry without a name, a null and a string are no tools."""

SPECS_LEFT_OUT = 4
"""The duplicate, the nameless one, null and the string."""


TRUTH: dict[str, list[Entry]] = {
    "langchain_docs": LANGCHAIN,
    "crewai_docs": CREWAI,
    "crewai_specs": CREWAI_SPECS,
    "n8n_verified": N8N_VERIFIED,
    "npm_registry": [{"package": name} for name in NPM_GOOD],
}
