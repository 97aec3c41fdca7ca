"""Bodies read piece by piece under caps, and made into text."""

from __future__ import annotations

import codecs
import contextlib
import io
import re
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message

import requests
from urllib3.exceptions import HTTPError, IncompleteRead, ProtocolError, ReadTimeoutError

from ecoagent.crawlers.web.errors import WebError

_PIECE = 1 << 16
_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Python codecs that are no charsets of pages, some slow without limit on long input.
_NO_CHARSET = {
    "idna",
    "punycode",
    "unicode-escape",
    "raw-unicode-escape",
    "undefined",
    "utf-7",
    "mbcs",
    "oem",
}
_NO_CHARSET |= {"hex", "base64", "bz2", "rot13", "uu", "zlib", "quopri"}


@dataclass(frozen=True)
class Caps:
    """Limits of one body: bytes, also once decompressed, and seconds."""

    max_bytes: int
    max_seconds: float


@dataclass(frozen=True)
class Body:
    """What was read. ``raw_bytes`` counts the bytes on the wire; ``cut`` says that the cap ended it."""

    data: bytes
    raw_bytes: int
    cut: bool = False


class _Plain:
    """Pieces as they come, never more than asked for."""

    def feed(self, piece: bytes, room: int) -> bytes:
        return piece[:room]

    def end(self) -> bool:
        return True


class _Inflate:
    """Decompression that stops at the room left, whatever a piece would grow to."""

    def __init__(self, coding: str) -> None:
        self._gzip = coding != "deflate"
        self._inflate = zlib.decompressobj(31 if self._gzip else 15)
        self._started = False

    def feed(self, piece: bytes, room: int) -> bytes:
        out = bytearray()
        while piece and len(out) < room:
            if self._inflate.eof:
                # A further gzip member; anything else after the end is padding.
                if not (self._gzip and piece.startswith(b"\x1f\x8b")):
                    break
                self._inflate = zlib.decompressobj(31)
            out += self._step(piece, room - len(out))
            piece = self._inflate.unconsumed_tail or self._inflate.unused_data
        return bytes(out)

    def _step(self, piece: bytes, room: int) -> bytes:
        try:
            return self._inflate.decompress(piece, room)
        except zlib.error:
            if self._gzip or self._started:
                raise
            # "deflate" means two things; the other is without the two bytes of header.
            self._inflate = zlib.decompressobj(-15)
            return self._inflate.decompress(piece, room)
        finally:
            self._started = True

    def end(self) -> bool:
        return self._inflate.eof or not self._started


def read_body(
    response: requests.Response,
    url: str,
    caps: Caps,
    clock: Callable[[], float],
    *,
    cut: bool = False,
) -> Body:
    """The decompressed body of a streamed response.

    Args:
        response: made with ``stream=True``, nothing read yet.
        url: address for messages.
        caps: limits.
        clock: seconds, only differences count.
        cut: a body over the cap is cut there instead of refused.

    Raises:
        WebError: ``too_large``, ``timeout``, ``truncated``, ``bad_encoding`` or ``connection``.
    """
    length = _content_length(response)
    if length is not None and length > caps.max_bytes and not cut:
        raise WebError("too_large", url, f"{length:,} bytes announced, the cap is {caps.max_bytes:,}")
    decoder = _decoder(response, url)
    late = threading.Event()
    timer = threading.Timer(caps.max_seconds, _stop, [response, late])
    timer.daemon = True
    timer.start()
    try:
        body = _read(response, url, caps, clock, decoder, cut)
    except zlib.error as error:
        raise WebError("bad_encoding", url, "the compressed body is damaged") from error
    except WebError as error:
        # A connection shut by the timer looks like a cut body.
        if late.is_set() and error.reason in ("truncated", "connection"):
            raise WebError("timeout", url, f"not read within {caps.max_seconds:g} s") from error
        raise
    finally:
        timer.cancel()
    if late.is_set():
        # Without a length the end of the connection, here made by the timer, is the end of the body.
        raise WebError("timeout", url, f"not read within {caps.max_seconds:g} s")
    return body


def _read(
    response: requests.Response,
    url: str,
    caps: Caps,
    clock: Callable[[], float],
    decoder: _Plain | _Inflate,
    cut: bool,
) -> Body:
    started, raw, out = clock(), 0, io.BytesIO()
    while True:
        piece = _piece(response, url)
        if not piece:
            break
        raw += len(piece)
        # One byte of room more than the cap: only a body that is over it fills that.
        out.write(decoder.feed(piece, caps.max_bytes + 1 - out.tell()))
        if out.tell() > caps.max_bytes or raw > caps.max_bytes:
            if cut:
                return Body(out.getvalue()[: caps.max_bytes], raw, cut=True)
            raise WebError("too_large", url, f"more than {caps.max_bytes:,} bytes, the cap")
        if clock() - started > caps.max_seconds:
            raise WebError("timeout", url, f"not read within {caps.max_seconds:g} s")
    length = _content_length(response)
    if (length is not None and raw < length) or not decoder.end():
        raise WebError("truncated", url, f"the body ended early, after {raw:,} bytes")
    return Body(out.getvalue(), raw)


def _piece(response: requests.Response, url: str) -> bytes:
    try:
        # What is there, not what fills the buffer: a trickle must come back to the clock.
        return response.raw.read1(_PIECE, decode_content=False) or b""
    except ReadTimeoutError as error:
        raise WebError("timeout", url, "the body stopped coming") from error
    except ProtocolError as error:
        cause = error.args[1] if len(error.args) > 1 else None
        if isinstance(cause, IncompleteRead) or "IncompleteRead" in repr(cause):
            raise WebError("truncated", url, "the body ended early") from error
        raise WebError("connection", url, "the connection broke while the body came") from error
    except (HTTPError, OSError, ValueError, AttributeError) as error:
        raise WebError("connection", url, "the connection broke while the body came") from error


def _stop(response: requests.Response, late: threading.Event) -> None:
    late.set()
    with contextlib.suppress(RuntimeError, ValueError, OSError, AttributeError):
        response.raw.shutdown()


def _content_length(response: requests.Response) -> int | None:
    if "transfer-encoding" in response.headers:
        return None
    text = response.headers.get("content-length", "").partition(",")[0].strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _decoder(response: requests.Response, url: str) -> _Plain | _Inflate:
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding in ("", "identity", "none", "utf-8"):
        return _Plain()
    if coding in ("gzip", "x-gzip", "deflate"):
        return _Inflate(coding)
    raise WebError("bad_encoding", url, f"content encoding {coding[:40]!r} was not asked for")


def decode(body: bytes, content_type: str) -> str:
    """Text of a body: charset of the header, else of a byte order mark, of a meta element, else UTF-8.

    An unknown charset is passed over. Bytes that do not fit become U+FFFD, NULs are dropped.
    """
    for name in (_header_charset(content_type), _bom_charset(body), _meta_charset(body), "utf-8"):
        codec = _codec(name)
        if codec is not None:
            break
    return body.decode(codec or "utf-8", "replace").removeprefix("\ufeff").replace("\0", "")


def _header_charset(content_type: str) -> str | None:
    message = Message()
    message["content-type"] = content_type.replace("\r", " ").replace("\n", " ")
    try:
        found = message.get_param("charset")
    except (ValueError, LookupError):
        return None
    return found if isinstance(found, str) else None


def _bom_charset(body: bytes) -> str | None:
    return next((name for mark, name in _BOMS if body.startswith(mark)), None)


def _meta_charset(body: bytes) -> str | None:
    found = _META.search(body[:2048])
    name = found.group(1).decode("ascii", "ignore") if found else None
    # Markup that could be read as ASCII is not in UTF-16, whatever it says.
    return "utf-8" if name and name.lower().startswith(("utf-16", "utf-32")) else name


def _codec(name: str | None) -> str | None:
    try:
        codec = codecs.lookup((name or "").strip().strip("\"'")).name
    except (LookupError, ValueError):
        return None
    if codec.replace("_", "-") in _NO_CHARSET:
        return None
    return "cp1252" if codec in ("ascii", "iso8859-1") else codec
