"""Options that every command takes, and how a command ends."""

from __future__ import annotations

import difflib
import errno
import json
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from ecoagent.cli.stopping import is_full_disk
from ecoagent.runs import Progress
from ecoagent.settings import Settings, UserError, load_settings

Profile = Annotated[
    str | None,
    typer.Option(
        envvar="ECOAGENT_PROFILE",
        help="Shipped profile (local, reference, paper, smoke), a TOML file, or a run's manifest.json. By "
        "default the settings recorded for an existing --run, else local.",
    ),
]
Run = Annotated[str | None, typer.Option(help="Run name under outputs/runs; by default the profile's.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Process at most this many items per stage.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of everything random.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done and what it costs; do nothing.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override one setting; may be repeated."),
]

RealSplit = Annotated[
    str | None,
    typer.Option(
        metavar="TRAIN/VAL/TEST",
        help="Percentages of EcoAgent-Real's queries, such as 80/10/10 [default: 0/50/50].",
    ),
]
_PERCENT = re.compile(r"\d+(\.\d+)?", re.ASCII)


def real_split_overrides(split: str | None) -> list[str]:
    """Settings that ``--real-split`` stands for.

    Raises:
        UserError: not three percentages that sum to 100.
    """
    if split is None:
        return []
    parts = [part.strip() for part in split.split("/")]
    # Decimals, since 33.3 + 33.3 + 33.4 are not 100 in binary.
    shares = [Decimal(part) / 100 for part in parts if _PERCENT.fullmatch(part)]
    if len(parts) != 3 or len(shares) != 3 or sum(shares) != 1:
        raise UserError(
            f"--real-split {split!r} is not three percentages of train, val and test that sum to 100",
            remedy="write --real-split 80/10/10, or 0/50/50 to train on none of them",
        )
    return [f"labeling.splits=[{', '.join(str(float(share)) for share in shares)}]"]


def settings_of(
    profile: str | None, run: str | None, limit: int | None, seed: int | None, overrides: list[str] | None
) -> Settings:
    """Settings from a command's options.

    A run that is there and whose profile is not named goes on with the settings recorded for it, so
    that a stage run alone does not mix two profiles in one run.
    """
    chosen = profile or "local"
    if profile is None and run is not None:
        named = load_settings("local", overrides=overrides or (), run=run)
        manifest = named.outputs / "runs" / named.run_name / "manifest.json"
        if manifest.is_file():
            chosen = str(manifest)
    return load_settings(chosen, overrides=overrides or (), run=run, limit=limit, seed=seed)


def one_of(option: str, given: Collection[str], there: Sequence[str]) -> None:
    """Check the values of an option.

    Raises:
        UserError: one is not among those there are; the nearest is named.
    """
    for wrong in sorted(set(given) - set(there)):
        near = difflib.get_close_matches(wrong, there, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UserError(f"{option} {wrong!r} is not known", remedy=f"{hint}one of {', '.join(there)}")


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, default=str) + "\n")


def fail(message: str, code: int) -> NoReturn:
    """End with a message on standard error and an exit code, whatever threads are still at work."""
    Progress().say(f"error: {message}")
    sys.stdout.flush()
    sys.stderr.flush()
    raise typer.Exit(code)


def _unusable(error: OSError, out: Path | None) -> str:
    """What is said of a file or folder that the system will not read or write."""
    name = os.fsdecode(error.filename) if not isinstance(error.filename, int) else str(error.filename)
    if out is not None and _is_at(Path(name), out):
        where = "give another folder with --out"
    else:
        where = "give a folder for runs with --set outputs=DIR, or name another file where it was named"
    needs = {
        errno.EACCES: "that you may read and write",
        errno.EPERM: "that you may read and write",
        errno.EROFS: "that you may read and write",
        errno.EEXIST: "that is no file",
        errno.ENOTDIR: "that is no file, nor below one",
        errno.ENAMETOOLONG: "of a shorter name",
    }.get(error.errno or 0)
    remedy = f"{where}; it has to be one {needs}" if needs else f"look at it, or {where}"
    return f"cannot read or write {name}: {error.strerror or error}; remedy: {remedy}"


def _is_at(path: Path, out: Path) -> bool:
    """Whether a path is what ``--out`` named, below it, above it, or an unfinished file beside it."""
    path, out = path.absolute(), out.absolute()
    return path.is_relative_to(out) or out.is_relative_to(path) or path.name.startswith(f".tmp-{out.name}.")


def guarded(work: Callable[[], int], *, out: Path | None = None) -> NoReturn:
    """Run a command's body; errors a user can mend become a line and exit code 2 (a gate: 1).

    Args:
        work: the body; returns the exit code.
        out: what ``--out`` named, so that a remedy for a file there speaks of ``--out``.
    """
    try:
        code = work()
    except UserError as error:
        fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        fail("stopped; finished shards are kept, run the same command again to go on", 130)
    except (OSError, sqlite3.Error, RuntimeError) as error:
        if is_full_disk(error):
            fail(
                "no space left on the disk (or the limit on file sizes is reached); "
                "remedy: free some space and run the same command again, nothing finished is lost",
                2,
            )
        if isinstance(error, OSError) and error.filename is not None:
            fail(_unusable(error, out), 2)
        raise
    sys.stdout.flush()
    raise typer.Exit(code)
