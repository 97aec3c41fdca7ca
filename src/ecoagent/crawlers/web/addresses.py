"""Only public addresses are connected to, and the address that was checked is the one connected to."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterable
from http.client import HTTPException
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from ecoagent.crawlers.web.errors import WebError

Resolve = Callable[..., list[Any]]
"""Like ``socket.getaddrinfo``."""
_MAX_ADDRESSES = 4
_MISSING = {
    getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA", "EAI_FAIL") if hasattr(socket, name)
}
# Answers on every virtual machine of one large provider, although the address counts as public.
_METADATA = frozenset({ipaddress.ip_address("168.63.129.16")})
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_public(address: str) -> bool:
    """Whether an IP address, as text, belongs to the public internet."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return all(_public(one) for one in (ip, *_inside(ip)))


def _public(ip: IPAddress) -> bool:
    refused = ip.is_private or ip.is_multicast or ip.is_reserved or ip.is_loopback or ip.is_link_local
    refused = refused or ip.is_unspecified or ip in _METADATA
    if isinstance(ip, ipaddress.IPv6Address):
        # Translated addresses are judged by what they stand for, and lie in a reserved range.
        if ip in _TRANSLATED or ip.ipv4_mapped is not None:
            return True
        return not (refused or ip.is_site_local)
    return ip.is_global and not refused


def _inside(ip: IPAddress) -> list[IPAddress]:
    """IPv4 addresses an IPv6 address stands for: mapped, 6to4, Teredo, translated, compatible."""
    if isinstance(ip, ipaddress.IPv4Address):
        return []
    found: list[IPAddress | None] = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
    if ip in _TRANSLATED or int(ip) >> 32 == 0:
        found.append(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
    return [one for one in found if one is not None]


def literal(host: str) -> str | None:
    """The IP address a host name writes out, also in the short and hexadecimal forms; else none."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except (OSError, UnicodeError, ValueError):
        return None


class AddressGuard:
    """Judges hosts before anything is connected to.

    Args:
        allow_private: ``host:port`` that may have a private address.
        resolve: name service, like ``socket.getaddrinfo``.
    """

    def __init__(self, allow_private: Iterable[str], resolve: Resolve = socket.getaddrinfo) -> None:
        self._exempt = {entry.lower() for entry in allow_private}
        self._resolve = resolve

    def exempt(self, host: str, port: int) -> bool:
        """Whether the user allows a private address here."""
        shown = f"[{host}]" if ":" in host else host
        return f"{shown}:{port}" in self._exempt

    def plainly_private(self, host: str, port: int) -> bool:
        """Whether the name alone, without asking the name service, shows a private address."""
        if self.exempt(host, port):
            return False
        written = literal(host)
        if written is not None:
            return not is_public(written)
        return host == "localhost" or host.endswith((".localhost", ".local", ".internal"))

    def addresses(self, host: str, port: int, url: str) -> list[tuple[int, Any]]:
        """(family, socket address) of a host, all checked.

        Raises:
            WebError: an address is not public (``private_address``), or there is none
                (``no_such_host``; ``connection`` where the name service fails in passing).
        """
        if self.plainly_private(host, port):
            raise WebError("private_address", url, "a private or local address is not fetched")
        try:
            found = self._resolve(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            if error.errno in _MISSING:
                raise WebError("no_such_host", url, f"there is no host {host}") from error
            raise WebError("connection", url, f"the name service does not answer for {host}") from error
        except (OSError, UnicodeError) as error:
            raise WebError("no_such_host", url, f"there is no host {host}") from error
        if not found:
            raise WebError("no_such_host", url, f"host {host} has no address")
        if not self.exempt(host, port) and not all(is_public(str(entry[4][0])) for entry in found):
            raise WebError(
                "private_address", url, f"{host} has a private or local address, which is not fetched"
            )
        return [(entry[0], entry[4]) for entry in found[:_MAX_ADDRESSES]]


def _connect(guard: AddressGuard, connection: HTTPConnection) -> socket.socket:
    """A socket to an address of the connection's host that was checked here and now."""
    shown = f"http://{connection.host}:{connection.port}/"
    last: OSError | None = None
    for family, address in guard.addresses(connection.host.strip("[]").rstrip("."), connection.port, shown):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            for option in connection.socket_options or ():
                sock.setsockopt(*option)
            # urllib3 hands down seconds or none once the request's timeout is worked out.
            sock.settimeout(connection.timeout)
            sock.connect(address)
            return sock
        except OSError as error:
            sock.close()
            last = error
    if isinstance(last, TimeoutError):
        raise ConnectTimeoutError(connection, "no answer in time") from last
    raise NewConnectionError(connection, f"cannot connect: {last}") from last


def _close_late(sock: socket.socket | None, late: threading.Event) -> None:
    late.set()
    with contextlib.suppress(OSError):
        if sock is not None:
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _pool_classes(guard: AddressGuard, max_seconds: float) -> dict[str, type[HTTPConnectionPool]]:
    # urllib3 takes classes, not objects: they are made here, around one guard.
    class Checked(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _connect(guard, self)

        def getresponse(self) -> Any:
            # The read timeout is for each piece; header lines that trickle are ended here.
            late = threading.Event()
            timer = threading.Timer(max_seconds, _close_late, [self.sock, late])
            timer.daemon = True
            timer.start()
            try:
                found = super().getresponse()
            except (OSError, HTTPException) as error:
                if late.is_set():
                    raise TimeoutError("headers too slow") from error
                raise
            finally:
                timer.cancel()
            if late.is_set():
                # Headers that were cut here count as whole for the standard library.
                found.close()
                raise TimeoutError("headers too slow")
            return found

    class CheckedTLS(Checked, HTTPSConnection):
        pass

    class Pool(HTTPConnectionPool):
        ConnectionCls = Checked

    class PoolTLS(HTTPSConnectionPool):
        ConnectionCls = CheckedTLS

    return {"http": Pool, "https": PoolTLS}


class CheckedAdapter(HTTPAdapter):
    """Connects to checked addresses only; connections through a proxy are the proxy's matter."""

    def __init__(self, guard: AddressGuard, max_seconds: float, connections: int) -> None:
        self._classes = _pool_classes(guard, max_seconds)
        super().__init__(pool_connections=64, pool_maxsize=connections, max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._classes


class QuietSession(requests.Session):
    """No cookies, no credentials of the user's files, no redirects of its own."""

    def __init__(self, adapter: HTTPAdapter) -> None:
        super().__init__()
        self.mount("http://", adapter)
        self.mount("https://", adapter)
        # A callable that adds nothing keeps requests from looking into .netrc.
        self.auth = lambda request: request
        self.headers.clear()
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """None: to look for the next request, requests would read the whole body."""
        return None
