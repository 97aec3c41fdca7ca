"""The LangChain documentation: an index of tools and a page for most of them.

As on the real site, the index has hand-written tables by purpose (first column: a link, here or to the
vendor) and a generated table of everything with a download badge that names the package. A page's
lead is boilerplate; what the tool does stands in its first real paragraph.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.standin.mintlify import Block, Code, H, Items, Note, P, Page, Quote, Site, Table

ROOT = "/oss/python/integrations/tools"


def _badge(package: str, downloads: int, *, anchor: bool = True) -> str:
    image = (
        f'<img src="https://static.pepy.tech/badge/{package}/month" alt="Downloads per month" noZoom '
        'class="rounded not-prose"/>'
    )
    inner = (
        f'<a href="https://packages.example/project/{package}/" target="_blank">{image}</a>'
        if anchor
        else image
    )
    return f'<span data-sort-value="{downloads}">{inner}</span>'


_SEARCH = Table(
    ["Tool/Toolkit", "Free/Paid", "Return Data"],
    [
        [f"[Quillseek Search]({ROOT}/quillseek_search)", "Paid", "URL, Snippet, Title"],
        [
            "[Harbor Web Search](https://docs.harborsearch.example/langchain)",
            "500 free searches/month",
            "URL, Title",
        ],
        [f"[Tidepool Search]({ROOT}/tidepool_search)", "Free", "URL, Content"],
        [f"[Lanternfish Search]({ROOT}/lanternfish_search)", "Free", "URL, Answer"],
        [
            f"[Fennel & Rye Search]({ROOT}/fennel_rye)",
            "Free tier available",
            "Title, [sources](https://fr.example)",
        ],
    ],
)
_CODE = Table(
    ["Tool/Toolkit", "Supported Languages", "Sandbox Lifetime", "Supports File Uploads", "Return Types"],
    [[f"[Pebble Sandbox]({ROOT}/pebble_sandbox)", "Python, JavaScript", "1 Hour", "✅", "Text, Images"]],
)
_WORK = Table(
    ["Tool/Toolkit", "Pricing"],
    [
        [
            f"[Inkmail Toolkit]({ROOT}/inkmail)",
            "Free, with [limits](https://inkmail.example/limits) per user",
        ],
        [f"[Gridnote Toolkit]({ROOT}/gridnote)", "Free"],
        ["Stapler (coming soon)", "Unknown"],
    ],
)
_BROWSE = Table(
    ["Tool/Toolkit", "Pricing", "Supports Interacting with the Browser"],
    [
        [f"[Brightlane Browser]({ROOT}/brightlane)", "Pay-as-you-go", "✅"],
        [f"[Brightlane Unlocker]({ROOT}/brightlane#unlocker)", "Pay-as-you-go", "❌"],
        [f"[Quillseek Search]({ROOT}/quillseek_search)", "Paid", "❌"],
    ],
)
_DATA = Table(
    ["Tool/Toolkit", "Allowed Operations"],
    [
        [f"[Ledger SQL Toolkit]({ROOT}/ledger_sql)", "Any SQL operation"],
        [f"[Grafwald Toolkit]({ROOT}/grafwald)", "Cypher, read only"],
    ],
)
_MONEY = Table(
    ["Tool/Toolkit", "Pricing", "Capabilities"],
    [
        [f"[Coinherd]({ROOT}/coinherd)", "Free", "Read prices of coins and tokens."],
        [f"[Mintleaf Payments]({ROOT}/mintleaf)", "Paid", "Send an invoice and follow its payment."],
    ],
)
_PLATFORM = Table(
    ["Tool/Toolkit", "Number of Integrations", "Pricing"],
    [[f"[Omnibridge]({ROOT}/internal/omnibridge)", "400+", "Free tier available"]],
)
_SAFE = Table(
    ["Tool/Toolkit", "Pricing", "Capabilities"],
    [
        [
            "[Wardstone URL Check](https://wardstone.example)",
            "100 free requests/day",
            "Say whether a link is safe.",
        ],
        ['<a href="javascript:void(0)">Popup Shield</a>', "Free", "Not a link at all."],
    ],
)
_MEDIA = Table(
    ["Tool/Toolkit", "Pricing", "Capabilities"],
    [
        [f"[Paintbox Image]({ROOT}/paintbox_image)", "Free tier", "Pictures from text."],
        [f"[Paintbox Video]({ROOT}/paintbox_legacy)", "Free tier", "Short films from text."],
    ],
)
_LEGEND = Table(["Symbol", "Meaning"], [["✅", "Supported"], ["❌", "Not supported"]])

_ALL = Table(
    ["Integration", "Downloads"],
    [
        [f"[`Quillseek search`]({ROOT}/quillseek_search)", _badge("langchain-quillseek", 736000)],
        [f"[`BrightlaneBrowser`]({ROOT}/brightlane)", _badge("langchain-brightlane", 91000)],
        [f"[`Inkmail toolkit`]({ROOT}/inkmail)", _badge("langchain-inkmail", 52000)],
        [f"[`Pebble sandbox`]({ROOT}/pebble_sandbox)", _badge("langchain-pebble", 41000, anchor=False)],
        [
            "[`HarborWebSearch`](https://docs.harborsearch.example/langchain)",
            _badge("langchain-harbor", 20000),
        ],
        [f"[`Tidepool search`]({ROOT}/tidepool_search)", _badge("langchain-tidepool", 9000)],
        [f"[`Saltmarsh weather`]({ROOT}/saltmarsh)", _badge("langchain-saltmarsh", 6000)],
        [f"[`Coinherd`]({ROOT}/coinherd)", _badge("coinherd-langchain", 4000)],
        [f"[`Mintleaf payments`]({ROOT}/mintleaf)", _badge("langchain-mintleaf", 961)],
        [f"[`Ledger SQL toolkit`]({ROOT}/ledger_sql)", _badge("langchain-ledger", 857)],
        [f"[`Hollow lantern`]({ROOT}/hollow)", _badge("langchain-hollow", 12)],
    ],
    wrap="integration-downloads-table",
)

INDEX = Page(
    ROOT,
    "Tool integrations",
    "Integrate with tools using LangChain Python.",
    [
        P("[Tools](/oss/python/langchain/tools) are functions a model may call."),
        P("A toolkit is several tools that belong together."),
        H(2, "Search"),
        P("The following table shows tools that search the web:"),
        _SEARCH,
        H(2, "Code interpreter"),
        _CODE,
        H(2, "Productivity"),
        _WORK,
        H(2, "Web browsing"),
        _BROWSE,
        H(2, "Database"),
        _DATA,
        H(2, "Finance"),
        _MONEY,
        H(2, "Integration platforms"),
        _PLATFORM,
        H(2, "Security"),
        _SAFE,
        H(2, "Media generation"),
        _MEDIA,
        H(2, "All tools and toolkits"),
        _ALL,
        Note("Info", "To add one, see [Contributing](/oss/python/contributing#add-a-new-integration)."),
        H(2, "Legend"),
        _LEGEND,
    ],
)


def _details(cls: str, package: str, *, swapped: bool = False) -> Table:
    shown = f"https://img.shields.io/pypi/v/{package}?style=flat-square&label=%20"
    cells = [
        f"[{cls}](https://reference.example/{cls})",
        f"[{package}](https://packages.example/project/{package}/)",
    ]
    head = ["Class", "Package"]
    if swapped:
        head, cells = head[::-1], cells[::-1]
    tail = ["✅", "❌", f"![Version]({shown})"]
    return Table(
        [*head, "Serializable", "[JS support](https://js.example/docs)", "Version"], [[*cells, *tail]]
    )


def _page(slug: str, name: str, blocks: Sequence[Block], lead: str | None = None) -> Page:
    shown = f"Integrate with the {name} tool using LangChain Python." if lead is None else lead
    return Page(f"{ROOT}/{slug}", f"{name} integration", shown, blocks)


_AGENT = Code(
    "python",
    'from langchain.agents import create_agent\n\nagent = create_agent(model="some-model", tools=[tool])',
    "Agent with tool",
)

PAGES: list[Page] = [
    _page(
        "quillseek_search",
        "Quillseek search",
        [
            Quote(
                "[Quillseek](https://quillseek.example) is a search engine for essays and long articles. "
                "It returns passages with their `author` and date."
            ),
            H(2, "Overview"),
            H(3, "Integration details"),
            _details("QuillseekSearchTool", "langchain-quillseek"),
            H(3, "Tool features"),
            Table(["Returns artifact", "Native async", "Return data"], [["❌", "✅", "URL, Snippet, Title"]]),
            H(2, "Setup"),
            Code("python", "pip install -U langchain-quillseek"),
            H(3, "Credentials"),
            Code("python", 'import os\n\nos.environ["QUILLSEEK_API_KEY"] = "your-key"', "Set API key"),
            H(2, "Instantiation"),
            Code(
                "python",
                "from langchain_quillseek import QuillseekSearchTool\n\nQuillseekSearchTool(max_results=5)",
            ),
            H(2, "Use within an agent"),
            Code("python", "from langchain_openai import ChatOpenAI\n\nmodel = ChatOpenAI()"),
        ],
    ),
    _page(
        "fennel_rye",
        "Fennel & Rye search",
        [
            P("Fennel & Rye finds recipes by what is in the cupboard, and says what is missing."),
            Code("bash", "uv add langchain-fennel-rye"),
            Code("python", "from langchain_fennel_rye import FennelRyeSearch\n\ntool = FennelRyeSearch()"),
            _AGENT,
        ],
    ),
    _page(
        "pebble_sandbox",
        "Pebble sandbox",
        [
            Code("python", "pip install -qU langchain-pebble langchain-openai"),
            P(
                "This guide provides a quick overview for getting started with the Pebble sandbox "
                "[tool](/oss/python/langchain/tools). For all features, head to the [API reference](https://r.example)."
            ),
            P("Pebble runs Python or JavaScript in a throw-away container and returns text and pictures."),
            H(2, "Instantiation"),
            Code(
                "python",
                "from langchain_openai import ChatOpenAI\nfrom langchain_core.messages import HumanMessage\n"
                "from langchain_pebble import (\n    PebbleSandboxTool,\n)\n\ntool = PebbleSandboxTool()",
            ),
            _AGENT,
        ],
    ),
    _page(
        "inkmail",
        "Inkmail toolkit",
        [
            P("The Inkmail toolkit reads, drafts and sends letters of an Inkmail account."),
            H(2, "Setup"),
            P("The toolkit lives in the `langchain-inkmail` package:"),
            Code("python", "pip install langchain-inkmail"),
            Code(
                "python",
                "from langchain_inkmail import InkmailToolkit\n\ntools = InkmailToolkit().get_tools()",
            ),
            H(2, "Tools"),
            P("View the tools:"),
            Items(["`InkmailCreateDraft`", "`InkmailSendLetter`", "`InkmailSearch`"]),
        ],
    ),
    _page(
        "gridnote",
        "Gridnote toolkit",
        [
            Note(
                "Warning",
                "Deprecated: this toolkit is no longer kept up. Use the [Inkmail toolkit](inkmail) instead.",
            ),
            P("Gridnote keeps notes in a grid; the toolkit adds, moves and finds them."),
            Code("python", "pip install -qU langchain-community"),
            Code("python", "from langchain_community.agent_toolkits.gridnote.toolkit import GridnoteToolkit"),
        ],
    ),
    _page(
        "brightlane",
        "Brightlane",
        [
            Quote(
                "[Brightlane](https://brightlane.example) drives a real browser for an agent, "
                "past pop-ups and captchas."
            ),
            _details("BrightlaneBrowser", "langchain-brightlane"),
            Code("python", "from langchain_brightlane import BrightlaneBrowser, BrightlaneUnlocker"),
            H(2, "Unlocker"),
            P("The unlocker fetches one page that hides behind a wall and returns its text."),
            Code(
                "python",
                "from langchain_brightlane import BrightlaneUnlocker\n\nBrightlaneUnlocker().invoke(url)",
            ),
        ],
        lead="",
    ),
    _page(
        "ledger_sql",
        "Ledger SQL toolkit",
        [
            P("The Ledger toolkit asks questions of a Ledger database in SQL and lists its tables."),
            _details("LedgerSQLToolkit", "langchain-ledger", swapped=True),
            Code("python", "from langchain_ledger.toolkit import LedgerSQLToolkit"),
        ],
    ),
    _page(
        "coinherd",
        "Coinherd",
        [
            P("Coinherd reads the prices of coins and tokens from many exchanges."),
            Code("python", "pip install coinherd-langchain"),
            Code("python", "from coinherd_langchain import CoinherdPrices as Prices\n\ntool = Prices()"),
        ],
    ),
    _page(
        "mintleaf",
        "Mintleaf payments",
        [
            P("Mintleaf sends an invoice and follows its payment."),
            Code("python", "from langchain_mintleaf import MintleafInvoiceTool, MintleafStatusTool"),
        ],
    ),
    _page(
        "saltmarsh",
        "Saltmarsh weather",
        [
            Code(
                "python", "from langchain_saltmarsh import SaltmarshWeather\n\nSaltmarshWeather().run('tide')"
            )
        ],
    ),
    _page("paintbox_video", "Paintbox video", [P("Paintbox video makes a short film from a sentence.")]),
    _page("internal/omnibridge", "Omnibridge", [P("Nobody should fetch this: robots.txt says so.")]),
]

SITE = Site(
    "Docs by LangChain",
    ROOT,
    (
        ("Popular Providers", (("Acme", "/oss/python/integrations/providers/acme"),)),
        (
            "Integrations by component",
            (
                ("Chat models", "/oss/python/integrations/chat"),
                ("Tools and toolkits", ROOT),
                ("Retrievers", "/oss/python/integrations/retrievers"),
            ),
        ),
    ),
    languages=(("Python", ROOT), ("TypeScript", "/oss/javascript/integrations/tools")),
)
