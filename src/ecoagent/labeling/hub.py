"""Requests from a data set of the Hugging Face Hub, through ``datasets``.

``hub:ORG/NAME[/CONFIG[/SPLIT]][@REVISION]``. Made for ToolRet (``mangopy/ToolRet-Queries``: 35 configs, split
``queries``, columns id, query, instruction, and labels as a JSON string) and open to any set with a column of
queries. What ``datasets`` finds as a folder of that name in the working directory it reads from there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ecoagent.labeling.rows import RequestRow, own_gold, said_language
from ecoagent.retrieval.toolbench import query_text
from ecoagent.settings import UserError

PREFIX = "hub:"
TEXT_COLUMNS = ("query", "text", "question")
ID_COLUMNS = ("id", "query_id", "_id", "qid")
GOLD_COLUMNS = ("gold", "labels")
LICENCE_COLUMNS = ("licence", "license")
LANGUAGE_COLUMN = "language"
FIRST_SPLITS = ("queries", "test")
_FORM = re.compile(
    r"hub:(?P<repo>[\w.-]+/[\w.-]+)(?:/(?P<config>[^/@]+)(?:/(?P<split>[^/@]+))?)?(?:@(?P<revision>[^/@]+))?"
)


@dataclass(frozen=True)
class HubSet:
    """A data set of the Hub, as named in the settings."""

    repo: str
    config: str | None = None
    split: str | None = None
    revision: str | None = None

    @property
    def name(self) -> str:
        """Name without the revision, written as origin of the queries."""
        return "/".join(p for p in (self.repo, self.config, self.split) if p)


def hub_set(text: str) -> HubSet:
    """Read ``hub:ORG/NAME[/CONFIG[/SPLIT]][@REVISION]``.

    Raises:
        UserError: the text has another form.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise UserError(
            f"labeling.queries = {text!r} names no data set of the Hub",
            remedy="write hub:ORG/NAME, hub:ORG/NAME/CONFIG or hub:ORG/NAME/CONFIG/SPLIT",
        )
    return HubSet(**found.groupdict())


@dataclass(frozen=True)
class HubTable:
    """One split of one config, with the configs there are beside it.

    Attributes:
        table: the library's table; rows are dictionaries.
    """

    configs: tuple[str, ...]
    config: str
    split: str
    table: Any

    def shown(self, wanted: HubSet) -> str:
        """The split as errors name it."""
        return f"{PREFIX}{'/'.join((wanted.repo, self.config, self.split))}"


def hub_configs(wanted: HubSet) -> list[str]:
    """Configs of a data set, sorted.

    Raises:
        UserError: it cannot be reached.
    """
    with _reached(wanted):
        return sorted(_datasets().get_dataset_config_names(wanted.repo, **_revision(wanted)))


def open_hub(wanted: HubSet, first: tuple[str, ...] = FIRST_SPLITS) -> HubTable:
    """Load a data set of the Hub.

    Args:
        first: splits that are meant where none is named, the first that is there.

    Raises:
        UserError: it cannot be reached; it has several configs or splits and none is named. What there is to
            choose from is listed.
    """
    library, revision = _datasets(), _revision(wanted)
    configs = hub_configs(wanted)
    with _reached(wanted):
        config = _choose(wanted, "config", wanted.config, configs, ("default",))
        splits = sorted(library.get_dataset_split_names(wanted.repo, config, **revision))
        split = _choose(wanted, "split", wanted.split, splits, first)
        table = library.load_dataset(wanted.repo, config, split=split, **revision)
    return HubTable(tuple(configs), config, split, table)


def _revision(wanted: HubSet) -> dict[str, str]:
    return {"revision": wanted.revision} if wanted.revision else {}


@contextmanager
def _reached(wanted: HubSet) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except _library_errors() as error:
        said, remedy = _why(error)
        raise UserError(
            f"{PREFIX}{wanted.name} cannot be read ({said})", remedy=f"{remedy}, or give a file or folder"
        ) from error


def _why(error: BaseException) -> tuple[str, str]:
    """What went wrong and what to do; the libraries' own words hide the Hub's status behind others."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set, and it is not in the cache", "unset HF_HUB_OFFLINE"
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    answers = [getattr(getattr(link, "response", None), "status_code", None) for link in chain]
    status = next((answer for answer in answers if answer), None)
    if status in (401, 403):
        return f"the Hub refuses it with HTTP {status}", "accept its terms on its page and set HF_TOKEN"
    if status == 429 or (status is not None and status >= 500):
        return f"the Hub answers HTTP {status}", "try again later"
    said = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(error, ConnectionError):
        return f"the Hub at {constants.ENDPOINT}: {said}", "look at the network and HF_ENDPOINT"
    return said, "look at the name, the network and HF_TOKEN"


def read_hub(wanted: HubSet) -> list[RequestRow]:
    """Requests of a data set, in its order.

    Raises:
        UserError: it cannot be reached; it has several configs or splits and none is named; no column holds
            queries, or a row has none. What there is to choose from is listed.
    """
    found = open_hub(wanted)
    configs, config, table = found.configs, found.config, found.table
    columns = list(table.column_names)
    text_column = next((c for c in TEXT_COLUMNS if c in columns), None)
    if text_column is None:
        raise UserError(
            f"{PREFIX}{wanted.name} has no column {', '.join(TEXT_COLUMNS)}; "
            f"it has {', '.join(sorted(columns))}",
            remedy="choose a data set with a column of queries",
        )
    id_column = next((c for c in ID_COLUMNS if c in columns), None)
    wishes = (text_column, id_column, *GOLD_COLUMNS, *LICENCE_COLUMNS, LANGUAGE_COLUMN)
    used = [c for c in wishes if c in columns]
    shown = found.shown(wanted)
    card = hub_licence(wanted.repo)
    rows: list[RequestRow] = []
    seen: dict[str, int] = {}
    for number, row in enumerate(table.select_columns(used)):
        where = f"{shown} row {number}"
        text = query_text(row[text_column])
        if text is None:
            raise UserError(
                f"{where}: {text_column} has no words", remedy="save the set as JSON lines without that row"
            )
        named = row[id_column] if id_column else None
        identifier = f"row-{number:06d}" if named is None else str(named)
        seen[identifier] = seen.get(identifier, 0) + 1
        licence = next((row[c] for c in LICENCE_COLUMNS if isinstance(row.get(c), str) and row[c]), card)
        rows.append(
            RequestRow(
                where,
                # A set of the Hub is not the user's to mend.
                identifier if seen[identifier] == 1 else f"{identifier}#{seen[identifier]}",
                text,
                own_gold(_golds(next((row[c] for c in GOLD_COLUMNS if c in row), None))),
                config if len(configs) > 1 else "",
                licence,
                said_language(row),
            )
        )
    return rows


def _choose(wanted: HubSet, what: str, named: str | None, there: list[str], usual: tuple[str, ...]) -> str:
    """The named one, the usual one, or the only one."""
    wishes = [named] if named is not None else [*usual, *(there if len(there) == 1 else [])]
    for wish in wishes:
        if wish in there:
            return wish
    fault = f"has no {what} {named!r}" if named is not None else f"has several {what}s"
    form = f"{PREFIX}{wanted.repo}/CONFIG" + ("/SPLIT" if what == "split" else "")
    raise UserError(
        f"{PREFIX}{wanted.repo} {fault}; it has {len(there)}: {', '.join(there)}", remedy=f"write {form}"
    )


def _golds(value: Any) -> list[str]:
    """Ids of right tools: a list of ids or of objects with an id and a relevance, maybe as a JSON string."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            return []
    golds = []
    for item in value if isinstance(value, list) else []:
        if isinstance(item, dict):
            relevance = item.get("relevance", 1)
            item = item.get("id") if isinstance(relevance, (int, float)) and relevance > 0 else None
        if isinstance(item, str):
            golds.append(item)
    return golds


def _datasets() -> Any:
    """The library: slow to import, and asked for by this source only."""
    import datasets

    return datasets


def _library_errors() -> tuple[type[Exception], ...]:
    """What ``datasets`` and the Hub's client raise; the client's errors come of its HTTP library's."""
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HfHubHTTPError

    transport = [kind for kind in HfHubHTTPError.__mro__ if kind.__name__ == "HTTPError"]
    return (OSError, ValueError, RuntimeError, DatasetsError, HfHubHTTPError, *transport)


def hub_licence(repo: str) -> str:
    """Licence on the data set's card; ``unknown`` where it says none."""
    from huggingface_hub import DatasetCard

    folder = Path(repo)
    card = folder / "README.md"
    if folder.is_dir() and not card.is_file():
        return "unknown"
    try:
        said = DatasetCard.load(card if folder.is_dir() else repo).data.to_dict().get("license")
    except _library_errors():
        return "unknown"
    names = said if isinstance(said, list) else [said]
    return ", ".join(str(n) for n in names if n) or "unknown"
