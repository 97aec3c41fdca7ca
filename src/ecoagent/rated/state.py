"""Learned state on disk: one .npz file with a JSON header, written whole or not at all.

Nothing is pickled: arrays are plain, and the header is UTF-8 JSON held as bytes.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecoagent.rated.errors import BanditError
from ecoagent.runs import write_bytes

_HEADER = "header"

SAVED = "give a file that save() of the same class wrote"


def write_state(
    path: Path,
    kind: str,
    version: int,
    header: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
) -> None:
    """Write arrays and header to ``path`` atomically.

    A reader, or a process started after a kill, sees the old file or the new one, never a part.
    """
    text = json.dumps({"format": kind, "version": version, **header}, sort_keys=True)
    members: dict[str, NDArray[Any]] = {_HEADER: np.frombuffer(text.encode(), dtype=np.uint8), **arrays}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **members)
    write_bytes(path, buffer.getvalue())


def read_state(path: Path, kind: str, version: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and arrays of a file of this kind, at this version or older.

    Raises BanditError if the file is missing, damaged, of another kind or of a newer version.
    """
    try:
        with np.load(path, allow_pickle=False) as members:
            arrays = {name: members[name] for name in members.files}
        header = json.loads(arrays.pop(_HEADER).tobytes().decode())
    except FileNotFoundError as error:
        raise BanditError(f"state file {path} does not exist", remedy=SAVED) from error
    except (OSError, ValueError, KeyError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise BanditError(
            f"state file {path} cannot be read: {error}", remedy="delete it and start from the cold state"
        ) from error
    if not isinstance(header, dict) or header.get("format") != kind:
        raise BanditError(f"state file {path} is not of kind {kind}", remedy=SAVED)
    found = header.get("version")
    if not isinstance(found, int) or found > version:
        raise BanditError(
            f"state file {path} has version {found}, this program reads up to {version}",
            remedy="update ecoagent",
        )
    return header, arrays
