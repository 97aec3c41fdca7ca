"""Parsers of Python wheels on handwritten packages: each trap of the catalogs once."""

from __future__ import annotations

import ast
import json
import time

from ecoagent.crawlers import crewai, langchain, llamaindex
from ecoagent.crawlers.pyast import PyPackage
from ecoagent.crawlers.pyeval import UNKNOWN, Evaluator
from ecoagent.crawlers.pyschema import SchemaReader
from ecoagent.schema import Candidate

from .fixtures_crawl import METADATA, bare_entry, sources

LANGCHAIN = {
    "demo_tools/__init__.py": "from demo_tools.tools.weather.tool import Weather as Forecast\n",
    "demo_tools/consts.py": """
        BASE = "https://api.weather-demo.com/v1"
        TEXT = "Looks up " + "the weather. "
        """,
    "demo_tools/wrappers.py": """
        import os
        from langchain_core.utils import get_from_dict_or_env, secret_from_env, from_env
        from pydantic import BaseModel, Field
        from demo_tools.consts import BASE

        class Inner(BaseModel):
            proxy: str = Field(default_factory=from_env("DEMO_PROXY", default=""))

        class WeatherWrapper(BaseModel):
            inner: "Inner"
            key: str = Field(default_factory=secret_from_env(["DEMO_KEY", "DEMO_KEY_OLD"]))

            def check(self, values):
                get_from_dict_or_env(values, "demo_id", "DEMO_ID")
                return BASE + os.environ["DEMO_REGION"]

            @classmethod
            def from_account(cls):
                return os.getenv("DEMO_NOT_COUNTED")
        """,
    "demo_tools/tools/weather/tool.py": """
        from typing import Optional, Type, List, Literal
        from langchain_core.tools import BaseTool
        from langchain_core._api import deprecated
        from pydantic import BaseModel, Field
        from demo_tools.consts import TEXT
        from demo_tools.wrappers import WeatherWrapper

        class Ask(BaseModel):
            city: str = Field(..., description="Name of the city.")
            days: Optional[int] = 3
            unit: Literal["c", "f"] = "c"
            tags: List[str] = Field(default_factory=list)

        class WeatherBase(BaseTool):
            name: str

        class Weather(WeatherBase):
            name: str = "weather"
            description: str = Field(default_factory=lambda: TEXT + "Input is a city.")
            args_schema: Type[BaseModel] = Ask
            wrapper: WeatherWrapper

            def _run(self, city, run_manager=None):
                return self.wrapper.check({})

        @deprecated(since="1.0", removal="2.0", alternative_import="other.Weather")
        class OldWeather(Weather):
            name: str = "old_weather"

        class ByMode(BaseTool):
            mode: str
            name: str = ""
            description: str = ""

            def _run(self, instructions: str = "", run_manager=None, **kwargs):
                return ""

        class Silent(BaseTool):
            name: str = "silent"
            description: str = ""

            def _run(self, a: int, b: str = "x"):
                return ""

        class Platform(BaseTool):
            name: str = "shell"
            description: str = f"Runs commands on this {system()} host."

            def _run(self, commands: str):
                return ""
        """,
    "demo_tools/agent_toolkits/forge/toolkit.py": """
        from demo_tools.wrappers import WeatherWrapper
        from demo_tools.tools.weather.tool import Ask

        PROMPT = '''
        Makes a file.
        '''

        class ForgeToolkit(BaseToolkit):
            @classmethod
            def from_wrapper(cls, wrapper: WeatherWrapper):
                operations = [
                    {"mode": "create_file", "name": "Create File", "description": PROMPT, "args_schema": Ask},
                    {"mode": "x", "name": "No Text", "description": ""},
                    {"mode": "y", "name": "Create File", "description": "Again."},
                    {"name": "not an operation", "description": "no mode"},
                ]
                return operations
        """,
    "demo_tools/broken.py": "def (:\n",
    "demo.dist-info/METADATA": METADATA,
}


def by_id(found: list[Candidate]) -> dict[str, Candidate]:
    return {c.record.id: c for c in found}


def parse_langchain() -> dict[str, Candidate]:
    return by_id(langchain.parse(sources(LANGCHAIN), bare_entry("langchain")))


def test_langchain_statuses() -> None:
    found = parse_langchain()
    prefix = "langchain:demo_tools.tools.weather.tool."
    toolkit = "langchain:demo_tools.agent_toolkits.forge.toolkit#"
    assert {i: (c.status, c.reason) for i, c in found.items()} == {
        prefix + "WeatherBase": ("rejected", "abstract"),
        prefix + "Weather": ("kept", None),
        prefix + "OldWeather": ("kept", None),
        prefix + "ByMode": ("rejected", "template"),
        prefix + "Silent": ("rejected", "no_description"),
        prefix + "Platform": ("kept", None),
        toolkit + "Create File": ("kept", None),
        toolkit + "Create File~2": ("kept", None),
        toolkit + "No Text": ("rejected", "no_description"),
    }


def test_langchain_fields_follow_imports_bases_and_factories() -> None:
    record = parse_langchain()["langchain:demo_tools.tools.weather.tool.Weather"].record
    assert record.name == "weather"
    assert record.description == "Looks up the weather. Input is a city."
    assert record.parameter_names == ["city", "days", "tags", "unit"]
    schema = json.loads(record.input_schema or "")
    assert schema["required"] == ["city"]
    assert schema["properties"]["city"] == {"type": "string", "description": "Name of the city."}
    assert schema["properties"]["days"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": 3}
    assert schema["properties"]["unit"] == {"enum": ["c", "f"], "default": "c"}
    assert record.schema_origin == "args_schema"
    assert record.licence == "MIT"
    assert record.group_name == "weather"


def test_langchain_auth_two_levels_without_from_methods() -> None:
    record = parse_langchain()["langchain:demo_tools.tools.weather.tool.Weather"].record
    required = {a.name: a.required for a in record.auth}
    assert required == {
        "DEMO_ID": True,
        "DEMO_KEY": True,
        "DEMO_KEY_OLD": True,
        "DEMO_PROXY": False,
        "DEMO_REGION": True,
    }
    assert record.auth_required == "yes"
    assert [e.url for e in record.endpoints] == ["https://api.weather-demo.com/v1"]


def test_langchain_deprecated_is_kept_with_its_flag() -> None:
    record = parse_langchain()["langchain:demo_tools.tools.weather.tool.OldWeather"].record
    assert record.deprecated.state
    assert record.deprecated.replacement == "other.Weather"
    assert record.description.startswith("Looks up")


def test_langchain_signature_without_framework_arguments() -> None:
    found = parse_langchain()
    silent = found["langchain:demo_tools.tools.weather.tool.Silent"].record
    assert (silent.parameter_names, silent.schema_origin) == (["a", "b"], "signature")
    mode = found["langchain:demo_tools.tools.weather.tool.ByMode"].record
    assert mode.parameter_names == ["instructions"]


def test_langchain_runtime_text_is_flagged_not_invented() -> None:
    record = parse_langchain()["langchain:demo_tools.tools.weather.tool.Platform"].record
    assert record.description == "Runs commands on this host."
    assert record.quality_flags == ["template"]


def test_langchain_toolkit_operation() -> None:
    record = parse_langchain()["langchain:demo_tools.agent_toolkits.forge.toolkit#Create File"].record
    assert (record.kind, record.group_name, record.description) == (
        "toolkit_operation",
        "Forge",
        "Makes a file.",
    )
    assert "DEMO_KEY" in {a.name for a in record.auth}


def test_package_granularity_uses_the_packages_own_summary() -> None:
    found = langchain.parse(sources(LANGCHAIN), bare_entry("langchain"), "package")
    assert [c.record.id for c in found] == ["langchain:demo"]
    assert found[0].record.description == "A demo package."


CREWAI = {
    "crewai_demo/__init__.py": """
        from crewai_demo.tools.search_tool.search import Search, OldSearch, Mode, Nothing, Waiting
        __all__ = ["Search", "OldSearch", "Mode", "Nothing", "Waiting"]
        """,
    "crewai_demo/tools/search_tool/search.py": """
        from crewai.tools import BaseTool, EnvVar
        from pydantic import BaseModel, Field

        class Fixed(BaseModel):
            pass

        class Args(Fixed):
            query: str = Field(..., description="What to look for.")

        class SearchBase(BaseTool):
            env_vars: list[EnvVar] = Field(
                default_factory=lambda: [
                    EnvVar(name="DEMO_API_KEY", description="key", required=True),
                    EnvVar(name="DEMO_PLACE", description="place", required=False),
                ]
            )

        class Search(SearchBase):
            name: str = "Demo Search"
            description: str = (
                "Searches the demo. "
                "Fast."
            )
            args_schema: type[BaseModel] = Args
            search_url: str = "https://search.demo.io/v2"

            def _run(self, query):
                return "see https://docs.demo.io/guide for help"

        class OldSearch(Search):
            is_deprecated_alias = True
            name: str = "Search"

            def _run(self, query):
                return ""

        class Mode(BaseTool):
            def _run(self):
                return ""

        class Nothing(BaseTool):
            name: str = "Nothing"
            description: str = ""

            def _run(self):
                return ""

        LIMIT: float = 300.0
        TEMPLATE = "Waits at most {cap}."

        def _seconds(value: float) -> str:
            return f"{value:g} second" if value == 1 else f"{value:g} seconds"

        def _text(limit: float) -> str:
            return TEMPLATE.format(cap=_seconds(limit))

        class Waiting(BaseTool):
            description: str = _text(LIMIT)

            def _run(self):
                return ""

        class Private(BaseTool):
            name: str = "private"
            description: str = "Not exported."

            def _run(self):
                return ""
        """,
}


def test_crewai_statuses_and_fallback_name() -> None:
    found = by_id(crewai.parse(sources(CREWAI), bare_entry("crewai")))
    assert {i: (c.status, c.reason) for i, c in found.items()} == {
        "crewai:SearchBase": ("rejected", "abstract"),
        "crewai:Search": ("kept", None),
        "crewai:OldSearch": ("rejected", "alias"),
        "crewai:Mode": ("rejected", "template"),
        "crewai:Nothing": ("rejected", "no_description"),
        "crewai:Waiting": ("kept", None),
        "crewai:Private": ("rejected", "not_exported"),
    }
    assert found["crewai:Waiting"].record.name == "Waiting"
    assert found["crewai:Waiting"].record.description == "Waits at most 300 seconds."
    assert found["crewai:OldSearch"].record.deprecated.replacement == "Search"


def test_crewai_record() -> None:
    record = by_id(crewai.parse(sources(CREWAI), bare_entry("crewai")))["crewai:Search"].record
    assert [(a.name, a.required, a.fields[0].secret) for a in record.auth] == [
        ("DEMO_API_KEY", True, True),
        ("DEMO_PLACE", False, False),
    ]
    assert record.parameter_names == ["query"]
    assert [(e.url, e.origin) for e in record.endpoints] == [("https://search.demo.io/v2", "class")]
    assert (record.group_name, record.tags) == ("search", ["search"])
    assert record.licence == "Demo License"  # the wheel states none: the lock's


LLAMA = {
    "llama_index/tools/notes/base.py": '''
        from typing import List, Optional
        import requests
        from llama_index.core.tools.tool_spec.base import BaseToolSpec
        from pydantic import BaseModel

        URL = "https://api.notes-demo.com/v1/search"

        class LoadSchema(BaseModel):
            database_id: Optional[str] = None

        class NotesToolSpec(BaseToolSpec):
            """Notes."""

            spec_functions = ["load_data", ("search", "asearch"), "bare", "gone"]

            def __init__(self, integration_token: str, page_size: int = 5) -> None:
                """Init."""

            def get_fn_schema_from_fn_name(self, fn_name, spec_functions=None):
                if fn_name == "load_data":
                    return LoadSchema
                raise ValueError(fn_name)

            def load_data(self, database_ids: Optional[List[str]] = None) -> str:
                """
                Loads notes.

                Use it with care.

                Args:
                    database_ids: which
                """

            async def asearch(self, query: str):
                """Async search."""

            def search(self, query: str, limit: int = 3):
                """
                Searches notes.
                params:
                    query: words
                """
                return requests.post(URL)

            def bare(self):
                return 1
        ''',
}


def test_llamaindex() -> None:
    found = by_id(llamaindex.parse(sources(LLAMA), bare_entry("llamaindex", "llama-index-tools-notes")))
    prefix = "llamaindex:llama-index-tools-notes:NotesToolSpec."
    assert {i: (c.status, c.reason) for i, c in found.items()} == {
        prefix + "load_data": ("kept", None),
        prefix + "search": ("kept", None),
        prefix + "bare": ("rejected", "no_description"),
        prefix + "gone": ("rejected", "not_found"),
    }
    load, search = found[prefix + "load_data"].record, found[prefix + "search"].record
    assert load.description == "Loads notes.\n\nUse it with care."
    assert load.name == "NotesToolSpec.load_data"
    # The declared schema is what the framework shows; that it lies is flagged.
    assert (load.parameter_names, load.schema_origin) == (["database_id"], "declared")
    assert load.quality_flags == ["schema_mismatch"]
    assert search.description == "Searches notes."
    assert search.parameter_names == ["limit", "query"]
    assert [(a.name, a.required) for a in search.auth] == [("integration_token", True)]
    assert [e.url for e in search.endpoints] == ["https://api.notes-demo.com/v1/search"]
    assert search.group_name == "Notes"


def test_resolution_through_reexports_relative_and_star_imports() -> None:
    package = PyPackage(
        sources(
            {
                "p/__init__.py": "from .a import *\nfrom .sub import Thing as Renamed\n",
                "p/a.py": "VALUE = 'v'\n",
                "p/sub/__init__.py": "from ..b import Thing\n",
                "p/b.py": "class Thing:\n    label = 'x'\n",
                "p/c.py": "from p import Renamed, VALUE\nimport p.b\nloop = loop\n",
            }
        )
    )
    evaluator = Evaluator(package)
    module = package.modules["p.c"]

    def value(text: str) -> object:
        return evaluator.value(module, ast.parse(text, mode="eval").body)

    assert value("Renamed.label + VALUE") == "xv"
    assert value("p.b.Thing.label") == "x"
    assert value("loop") is UNKNOWN
    assert value("open('/etc/passwd').read()") is UNKNOWN
    assert value("'{}-{b}'.format(1, b='c').upper()") == "1-C"
    assert value("'{0.__class__}'.format(1)") is UNKNOWN
    assert value("'{:>999999999}'.format('x')") is UNKNOWN
    assert value("'aaa'.replace('', 'b')") is UNKNOWN
    assert value("', '.join(['a', 'b'])") == "a, b"


def test_code_written_to_explode_is_given_up_on() -> None:
    lines = ["def f(x):\n    return f(x) + f(x)\n", "A0 = unknown()\n"]
    lines += [f"A{i} = A{i - 1} + A{i - 1}\n" for i in range(1, 60)]
    package = PyPackage({"m.py": "".join(lines).encode()})
    module, evaluator = package.modules["m"], Evaluator(package)
    started = time.monotonic()
    assert evaluator.value(module, ast.parse("A59", mode="eval").body) is UNKNOWN
    assert evaluator.value(module, ast.parse("f('x')", mode="eval").body) is UNKNOWN
    assert time.monotonic() - started < 5


def test_broken_files_are_listed_not_fatal() -> None:
    package = PyPackage({"p/x.py": b"def (:", "p/y.py": b"A = 1\n", "p/z.py": b"\x00"})
    assert list(package.modules) == ["p.y"]
    assert sorted(package.broken) == ["p/x.py", "p/z.py"]


def test_annotation_schemas() -> None:
    package = PyPackage(
        sources(
            {
                "m.py": """
                    from enum import Enum
                    from typing import *
                    from pydantic import BaseModel, Field
                    class Color(Enum):
                        RED = "red"
                        BLUE = "blue"
                    class Sub(BaseModel):
                        x: int
                    class M(BaseModel):
                        kind: ClassVar[str] = "k"
                        _hidden: int = 1
                        color: Color = Color.RED
                        sub: Optional[Sub] = None
                        many: list[dict[str, int]] | None = None
                        told: Annotated[str, Field(description="Told.")]
                        self_: "M" = None
                    """
            }
        )
    )
    evaluator = Evaluator(package)
    cls = next(c for c in package.classes() if c.node.name == "M")
    schema = SchemaReader(package, evaluator).model(cls)
    assert list(schema["properties"]) == ["color", "sub", "many", "told", "self_"]
    assert schema["properties"]["color"]["enum"] == ["red", "blue"]
    assert schema["properties"]["many"]["anyOf"][0] == {"type": "array", "items": {"type": "object"}}
    assert schema["properties"]["told"]["description"] == "Told."
    assert schema["required"] == ["told"]


def test_schema_that_the_function_does_not_take_is_flagged() -> None:
    source = """
        from crewai.tools import BaseTool
        from pydantic import BaseModel

        class Args(BaseModel):
            query: str
            limit: int = 3

        class {name}(BaseTool):
            name: str = "t"
            description: str = "Looks things up."
            args_schema: type[BaseModel] = Args

            def _run(self, {parameters}):
                return ""
        """
    flagged = {
        "query, limit=1": False,
        "query, limit=1, more=None": False,
        "query": True,
        "query, **kwargs": False,
        "*args": False,
        "query, limit, other": True,
        "query, *, limit, other=1": False,
        "query, *, limit, other": True,
        "run_manager=None, **kwargs": False,
    }
    for parameters, expected in flagged.items():
        text = source.replace("{name}", "Tool1").replace("{parameters}", parameters)
        (found,) = crewai.parse(sources({"p/tool.py": text}), bare_entry("crewai"))
        assert (found.record.quality_flags == ["schema_mismatch"]) is expected, parameters
        text = text.replace("from crewai.tools", "from langchain_core.tools")
        (found,) = langchain.parse(sources({"p/tool.py": text}), bare_entry("langchain"))
        assert (found.record.quality_flags == ["schema_mismatch"]) is expected, parameters


def test_addresses_are_followed_into_helpers_but_scopes_are_not_called() -> None:
    files = {
        "p/utils.py": """
            SCOPES = ["https://graph.demo.io/Mail.Send"]

            class Config:
                api_url: str = "https://api.demo.io/v3"

            def connect(mode):
                login(scopes=["https://graph.demo.io/Mail.Read"], headers={"Referer": "https://www.demo.io/"})
                return open_(
                    "https://main.demo.io/rpc" if mode else "https://test.demo.io/rpc"
                )
            """,
        "p/tool.py": """
            from langchain_core.tools import BaseTool
            from p.utils import SCOPES, Config, connect

            class Other(BaseTool):
                name: str = "other"
                description: str = "Another tool."

                def _run(self):
                    return "https://other.demo.io/x"

            class Mine(BaseTool):
                name: str = "mine"
                description: str = "A tool."

                def _run(self):
                    return Other(), connect(SCOPES), Config
            """,
    }
    found = by_id(langchain.parse(sources(files), bare_entry("langchain")))
    assert sorted(e.url for e in found["langchain:p.tool.Mine"].record.endpoints) == [
        "https://api.demo.io/v3",
        "https://main.demo.io/rpc",
        "https://test.demo.io/rpc",
    ]


def test_files_that_cannot_hold_a_tool_are_not_parsed() -> None:
    package = PyPackage({"p/tool.py": b"class A: ...", "p/other.py": b"def (:"})
    assert [c.id for c in package.classes(b"tool")] == ["p.tool.A"]
    assert package.broken == {}


def test_secrets_read_but_not_declared_are_missing_auth() -> None:
    source = """
        import os
        from crewai.tools import BaseTool, EnvVar

        class Silent(BaseTool):
            name: str = "silent"
            description: str = "Looks things up."

            def _run(self):
                return os.environ["DEMO_API_KEY"], os.getenv("DEMO_REGION")

        class Plain(BaseTool):
            name: str = "plain"
            description: str = "Looks things up."

            def _run(self):
                return os.getenv("DEMO_REGION")

        class Open(Silent):
            env_vars: list[EnvVar] = [EnvVar(name="DEMO_API_KEY")]
        """
    found = by_id(crewai.parse(sources({"p/tool.py": source}), bare_entry("crewai")))
    assert {i: c.record.quality_flags for i, c in found.items()} == {
        "crewai:Silent": ["missing_auth"],
        "crewai:Plain": [],
        "crewai:Open": [],
    }
