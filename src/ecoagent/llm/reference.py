"""Published responses: a read-only file that answers before the model does.

Given the same file and artifacts, a run writes the same bytes and needs no model.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ecoagent.llm.protocol import GenerationResponse
from ecoagent.llm.store import broken_row, first_fault, response_of
from ecoagent.runs import read_rows, sha256_file, write_table
from ecoagent.schema import PublishedResponse
from ecoagent.settings import UserError

SHIPPED = "shipped"
FILE = "responses.parquet"
_AGAIN = "fetch the file of published responses again, or set llm.reference to another or to none"


class ReferenceResponses:
    """Responses of a published file, by request hash.

    Args:
        path: the file, as ``write_reference`` writes it.

    Raises:
        UserError: it is not there. Reading it raises one where it is no file of responses.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise UserError(
                f"published responses {path} are not there",
                remedy="mend llm.reference, or set it to none: then the model is asked for everything",
            )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the file."""
        return sha256_file(self.path)

    @cached_property
    def _rows(self) -> dict[str, PublishedResponse]:
        rows = read_rows(self.path, PublishedResponse, remedy=_AGAIN)
        # A failure is no answer, whoever published it.
        return {row.request_hash: row for row in rows if row.status == "ok"}

    def __len__(self) -> int:
        return len(self._rows)

    def dump(self, hashes: Iterable[str]) -> list[dict[str, Any]]:
        """The rows held, as plain values.

        Raises:
            UserError: one holds no response; file and request are named.
        """
        rows = [self._rows[h].model_dump() for h in hashes if h in self._rows]
        for row in rows:
            response_of(row, self.path, _AGAIN)
        return rows

    def get_many(self, hashes: Iterable[str]) -> dict[str, GenerationResponse]:
        """The responses held, marked as published.

        Raises:
            UserError: one holds no response; file and request are named.
        """
        held = (self._rows[h].model_dump() for h in hashes if h in self._rows)
        found = (response_of(row, self.path, _AGAIN) for row in held)
        return {r.request_hash: r.model_copy(update={"published": True}) for r in found}


def write_reference(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """Write rows as ``ResponseStore.dump`` gives them, sorted by hash; answers only, no failures.

    Raises:
        UserError: a row holds no response; nothing is written.
    """
    ordered = sorted((r for r in rows if r["status"] == "ok"), key=lambda r: str(r["request_hash"]))
    return write_table(path, [_published(path, row) for row in ordered], PublishedResponse)


def _published(path: Path, row: dict[str, Any]) -> PublishedResponse:
    remedy = "mend the store that llm.store or the file that llm.reference names: one of them holds it"
    try:
        published = PublishedResponse(**row)
    except ValidationError as error:
        raise broken_row(path, row, first_fault(error), remedy) from error
    response_of(published.model_dump(), path, remedy)
    return published


def reference_folder() -> Path | None:
    """Folder of the reference build: inside the package in a wheel, beside ``src`` in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "reference_build", package.parents[1] / "reference_build"):
        if (folder / FILE).is_file():
            return folder
    return None


def open_reference(named: str | None) -> ReferenceResponses | None:
    """The responses that ``llm.reference`` names; none if it names none.

    Raises:
        UserError: they are not there.
    """
    if named is None:
        return None
    if named != SHIPPED:
        return ReferenceResponses(Path(named))
    folder = reference_folder()
    if folder is None:
        raise UserError(
            "this installation holds no reference build",
            remedy="work from a checkout, name a file in llm.reference, or set it to none: all is generated",
        )
    return ReferenceResponses(folder / FILE)
