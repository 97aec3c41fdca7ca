"""Bytes from the Hugging Face Hub, given up within seconds where it cannot be reached."""

from __future__ import annotations

import hashlib
import os
import threading
from fnmatch import fnmatch
from pathlib import Path

import requests

from ecoagent.models.fetching import ByteCount, FolderWatch, SourceFailed
from ecoagent.models.sources import HubSource, ModelSource, WeightFile
from ecoagent.models.verify import CHUNK, file_fault

_out_of_reach: dict[str, str] = {}
"""Endpoint -> why, for the rest of this process: the next model does not wait again."""


def forget_hub_state() -> None:
    """Try the Hub afresh."""
    _out_of_reach.clear()


def endpoint() -> str:
    """The Hub's address as ``HF_ENDPOINT`` or the library has it."""
    from huggingface_hub import constants

    return (os.environ.get("HF_ENDPOINT") or str(constants.ENDPOINT)).rstrip("/")


def require_hub(hub: HubSource, first_file: str, timeout_s: float) -> None:
    """Ask once, briefly, whether the Hub has this commit for us.

    Raises:
        SourceFailed: offline by choice, out of reach, or the commit is refused or unknown.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").strip().lower() in {"1", "on", "yes", "true"}:
        raise SourceFailed("HF_HUB_OFFLINE is set")
    base = endpoint()
    if base in _out_of_reach:
        raise SourceFailed(f"{_out_of_reach[base]} (not asked again in this process)")
    status = _head(f"{base}/{hub.repo}/resolve/{hub.revision}/{first_file}", timeout_s)
    if isinstance(status, str):
        _out_of_reach[base] = status
        raise SourceFailed(status)
    if status in (401, 403):
        raise SourceFailed(
            f"the Hub refuses {hub.repo} (HTTP {status}); accept its licence on its page and set HF_TOKEN"
        )
    if status >= 400:
        raise SourceFailed(f"the Hub answers HTTP {status} for {hub.repo} at {hub.revision[:12]}")


def hub_fault(source: ModelSource, timeout_s: float) -> str | None:
    """Why the Hub cannot give ``source`` now; none if it can. Downloads nothing."""
    if source.hub is None:
        return f"{source.name} is not on the Hub"
    try:
        require_hub(source.hub, "config.json", timeout_s)
    except SourceFailed as error:
        return str(error)
    return None


def _head(url: str, timeout_s: float) -> int | str:
    """HTTP status, or why there is none. A thread, since a slow name look-up heeds no timeout."""
    from huggingface_hub import get_token

    answer: list[int | str] = []
    token = get_token()

    def ask() -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            answer.append(requests.head(url, headers=headers, timeout=timeout_s).status_code)
        except requests.RequestException as error:
            answer.append(f"the Hub is out of reach ({type(error).__name__})")

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(timeout_s)
    return answer[0] if answer else f"the Hub did not answer within {timeout_s:g} s"


def fetch_file(hub: HubSource, expected: WeightFile, target: Path, scratch: Path, count: ByteCount) -> None:
    """Download one pinned file and move it to ``target`` once its sha256 holds.

    Raises:
        SourceFailed: the download failed or the bytes are not the pinned ones.
    """
    from huggingface_hub import hf_hub_download

    scratch.mkdir(parents=True, exist_ok=True)
    try:
        with FolderWatch(scratch, count, expected.path):
            got = hf_hub_download(
                hub.repo, expected.path, revision=hub.revision, local_dir=scratch, endpoint=endpoint()
            )
    except _hub_errors() as error:
        raise SourceFailed(f"the Hub's {expected.path}: {_first_line(error)}") from error
    path = Path(got)
    fault = file_fault(path, expected)
    if fault:
        path.unlink(missing_ok=True)
        raise SourceFailed(f"the Hub's {expected.path}: {fault}")
    target.parent.mkdir(parents=True, exist_ok=True)
    path.replace(target)


def fetch_snapshot(hub: HubSource, target: Path, count: ByteCount) -> list[str]:
    """Download the files of a commit that match the patterns; returns their paths.

    Each file is held to the sum the Hub lists for the pinned commit: sha256 for large files, the
    git blob's sha1 for small ones.

    Raises:
        SourceFailed: the download failed or a sum does not hold.
    """
    from huggingface_hub import HfApi, snapshot_download

    target.mkdir(parents=True, exist_ok=True)
    try:
        info = HfApi(endpoint=endpoint()).model_info(hub.repo, revision=hub.revision, files_metadata=True)
        with FolderWatch(target, count, hub.repo):
            snapshot_download(
                hub.repo,
                revision=hub.revision,
                local_dir=target,
                allow_patterns=list(hub.patterns) or None,
                endpoint=endpoint(),
            )
    except _hub_errors() as error:
        raise SourceFailed(f"the Hub's {hub.repo}: {_first_line(error)}") from error
    names = []
    for sibling in info.siblings or []:
        name = str(sibling.rfilename)
        if hub.patterns and not any(fnmatch(name, pattern) for pattern in hub.patterns):
            continue
        path = target / name
        wanted = sibling.lfs.sha256 if sibling.lfs else sibling.blob_id
        if not path.is_file() or wanted != (_sha256(path) if sibling.lfs else _git_blob(path)):
            path.unlink(missing_ok=True)
            raise SourceFailed(f"the Hub's {hub.repo} {name} does not have the sum {wanted}")
        names.append(name)
    if not names:
        raise SourceFailed(f"the Hub's {hub.repo} has no file like {', '.join(hub.patterns)}")
    return sorted(names)


def _hub_errors() -> tuple[type[Exception], ...]:
    """What the Hub's client raises: its HTTP library's errors are the parents of its own."""
    from huggingface_hub.errors import HfHubHTTPError, XetDownloadError

    transport = [kind for kind in HfHubHTTPError.__mro__ if kind.__name__ == "HTTPError"]
    return (OSError, ValueError, XetDownloadError, HfHubHTTPError, *transport)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while block := handle.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()


def _git_blob(path: Path) -> str:
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"
