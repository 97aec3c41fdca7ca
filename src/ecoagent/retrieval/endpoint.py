"""Embeddings of an OpenAI-compatible endpoint (Ada-002 in the paper), stored so that none is asked twice."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import requests
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_exponential_jitter

from ecoagent.retrieval.declared import NotAvailable
from ecoagent.retrieval.encoders import Embeddings, OnBatch
from ecoagent.runs import digest
from ecoagent.settings import BaselineSettings, UserError

CONNECT_TIMEOUT_S = 10.0
BUSY_TIMEOUT_S = 60.0
MAX_WAIT_S = 120.0
"""A longer Retry-After is not waited for."""
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_LOOK_UP = 500
_CREATE = "CREATE TABLE IF NOT EXISTS embeddings (key TEXT PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID"


class _PassingFault(Exception):  # noqa: N818 - told to the user only through NotAvailable
    """A fault that another try may mend."""

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason, self.retry_after_s = reason, retry_after_s


class EmbeddingStore:
    """Vectors by key in one SQLite file; usable by several processes at once."""

    def __init__(self, path: Path) -> None:
        """Open or create the file.

        Raises:
            UserError: it cannot be opened or is no store of embeddings.
        """
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute(_CREATE)
        except (sqlite3.DatabaseError, OSError) as error:
            raise self._trouble(error) from error

    def get_many(self, keys: Iterable[str]) -> dict[str, Embeddings]:
        """Stored vectors, float32."""
        wanted = sorted(set(keys))
        found: dict[str, Embeddings] = {}
        try:
            for start in range(0, len(wanted), _LOOK_UP):
                some = wanted[start : start + _LOOK_UP]
                marks = ", ".join("?" for _ in some)
                rows = self._db.execute(f"SELECT key, vector FROM embeddings WHERE key IN ({marks})", some)
                found |= {key: np.frombuffer(vector, dtype="<f4").astype(np.float32) for key, vector in rows}
        except (sqlite3.DatabaseError, ValueError) as error:
            raise self._trouble(error) from error
        return found

    def put_many(self, vectors: Mapping[str, Embeddings]) -> None:
        """Store vectors in one transaction; those already held are kept."""
        rows = [(key, vector.astype("<f4").tobytes()) for key, vector in vectors.items()]
        try:
            with self._db:
                self._db.executemany("INSERT OR IGNORE INTO embeddings VALUES (?, ?)", rows)
        except sqlite3.DatabaseError as error:
            raise self._trouble(error) from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _trouble(self, error: Exception) -> UserError:
        return UserError(
            f"store of embeddings {self.path}: {error}",
            remedy="move it away or set baselines.store to another file: what is missing is asked again",
        )


class EndpointEncoder:
    """An encoder whose vectors come from an endpoint, one text each, scaled to length 1.

    Queries and documents are sent as they are. A vector is known by the endpoint's address, the model
    and the text.
    """

    def __init__(
        self, settings: BaselineSettings, *, name: str | None = None, api_key: str | None = None
    ) -> None:
        if not settings.base_url:
            raise NotAvailable("no embeddings endpoint is configured", remedy="set baselines.base_url")
        self.url = f"{_with_version(settings.base_url)}/embeddings"
        self.name, self.dim = name or settings.model, 0
        self._settings = settings
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def encode_queries(self, texts: Sequence[str], on_batch: OnBatch | None = None) -> Embeddings:
        """(n, d) vectors of queries; see ``Encoder``."""
        return self._encode(texts, on_batch)

    def encode_documents(self, texts: Sequence[str], on_batch: OnBatch | None = None) -> Embeddings:
        """(n, d) vectors of tool texts; see ``Encoder``."""
        return self._encode(texts, on_batch)

    def _encode(self, texts: Sequence[str], on_batch: OnBatch | None) -> Embeddings:
        keys = {text: digest([self.url, self._settings.model, text]) for text in sorted(set(texts))}
        store = EmbeddingStore(self._settings.store)
        try:
            found = store.get_many(keys.values())
            if on_batch is not None and found:
                on_batch(len(found))
            missing = [text for text, key in keys.items() if key not in found]
            with requests.Session() as session:
                for start in range(0, len(missing), self._settings.batch_size):
                    batch = missing[start : start + self._settings.batch_size]
                    fresh = dict(zip((keys[text] for text in batch), self._ask(session, batch), strict=True))
                    store.put_many(fresh)
                    found |= fresh
                    if on_batch is not None:
                        on_batch(len(batch))
        finally:
            store.close()
        if not texts:
            return np.empty((0, self.dim), dtype=np.float32)
        lengths = {len(vector) for vector in found.values()}
        if len(lengths) != 1:
            raise NotAvailable(
                f"{self.url} gave vectors of {len(lengths)} lengths: {', '.join(map(str, sorted(lengths)))}",
                remedy="see which model it serves, and set baselines.store to a new file",
            )
        self.dim = lengths.pop()
        rows = np.stack([found[keys[text]] for text in texts])
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        unit: Embeddings = (rows / np.where(norms > 0, norms, 1.0)).astype(np.float32)
        return unit

    def _ask(self, session: requests.Session, texts: list[str]) -> list[Embeddings]:
        tries = self._settings.retries + 1
        try:
            found: list[Embeddings] = Retrying(
                stop=stop_after_attempt(tries),
                wait=_wait(self._settings.backoff_s),
                retry=retry_if_exception_type(_PassingFault),
                reraise=True,
            )(self._request, session, texts)
        except _PassingFault as error:
            raise NotAvailable(
                f"{self.url}: {error.reason}, after {tries} tries",
                remedy="see that the endpoint runs; vectors so far are stored, the same command goes on",
            ) from error
        return found

    def _request(self, session: requests.Session, texts: list[str]) -> list[Embeddings]:
        settings = self._settings
        try:
            reply = session.post(
                self.url,
                json={"model": settings.model, "input": texts, "encoding_format": "float"},
                headers=self._headers,
                timeout=(min(CONNECT_TIMEOUT_S, settings.timeout_s), settings.timeout_s),
            )
        except (requests.ConnectionError, requests.Timeout) as error:
            raise _PassingFault(f"no answer ({type(error).__name__})") from error
        except requests.RequestException as error:
            raise NotAvailable(f"{self.url}: {error}", remedy="mend baselines.base_url") from error
        code = reply.status_code
        if code in _PASSING:
            raise _PassingFault(f"HTTP {code}", _seconds(reply.headers.get("Retry-After")))
        if code in (401, 403):
            raise NotAvailable(
                f"{self.url} refuses the key (HTTP {code})",
                remedy=f"put the key into the environment variable {settings.api_key_env}",
            )
        if code >= 400:
            said = " ".join(reply.text[:300].split())
            raise NotAvailable(
                f"{self.url} answers HTTP {code} for model {settings.model!r}: {said}",
                remedy="mend baselines.base_url or baselines.model",
            )
        return self._read(reply, len(texts))

    def _read(self, reply: requests.Response, count: int) -> list[Embeddings]:
        """Vectors in the order asked; replies may list them in another."""
        try:
            rows: list[dict[str, Any]] = reply.json()["data"]
            by_place = {int(row["index"]): np.asarray(row["embedding"], dtype=np.float32) for row in rows}
            vectors = [by_place[place] for place in range(count)]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise NotAvailable(
                f"{self.url} gave no list of {count} embeddings ({type(error).__name__}: {error})",
                remedy="give an OpenAI-compatible embeddings endpoint as baselines.base_url",
            ) from error
        if any(vector.ndim != 1 or not len(vector) or not np.isfinite(vector).all() for vector in vectors):
            raise NotAvailable(
                f"{self.url} gave an embedding that is no list of finite numbers",
                remedy="see what the endpoint serves",
            )
        return vectors


def _wait(first_s: float) -> Any:
    jittered = wait_exponential_jitter(initial=first_s, max=MAX_WAIT_S, jitter=first_s)

    def wait(state: RetryCallState) -> float:
        fault = state.outcome.exception() if state.outcome else None
        asked = fault.retry_after_s if isinstance(fault, _PassingFault) else None
        return float(jittered(state)) if asked is None else min(asked, MAX_WAIT_S)

    return wait


def _seconds(header: str | None) -> float | None:
    try:
        return max(0.0, float(header)) if header else None
    except ValueError:
        return None  # a date: the usual wait will do


def _with_version(url: str) -> str:
    trimmed = url.strip().rstrip("/").removesuffix("/embeddings")
    if not trimmed.startswith(("http://", "https://")):
        raise NotAvailable(f"baselines.base_url = {url!r} is no URL", remedy="write http://host:port/v1")
    # Some hosts have more after the version: /v1beta/openai.
    return trimmed if re.search(r"/v\d\w*(/|$)", trimmed) else f"{trimmed}/v1"
