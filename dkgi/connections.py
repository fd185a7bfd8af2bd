"""HTTP connections on which every wait ends by a deadline, whatever the other side does.

>>> Connections().send("POST", "https://api.openai.com/v1/responses", headers, b"{}", deadline=time.monotonic() + 60)
RawReply(status=401, headers=[(b'content-type', b'application/json'), ...], body=b'{"error": ...')

Timeouts of HTTP libraries bound one read, and a server that drips bytes never meets them; here each read, each write
and the look-up of a name gets what is left. HTTPS_PROXY, HTTP_PROXY and NO_PROXY are honoured.
Not covered: what a reply means (wires.py), trying again (exchange.py).
"""

import queue
import socket
import ssl
import threading
import time
import urllib.parse
import urllib.request
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import httpcore2
import httpx2

CAP_BYTES = 64 * 1024 * 1024
_CONNECT_S = 10.0
_SILENCE_S = 600.0
_IDLE_S = 20.0
_WRITE_BYTES = 65_536

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class RawReply:
    status: int
    headers: Headers
    body: bytes

    def header(self, name: str) -> str:
        """The first header of this name, in lower case; an empty text where there is none."""
        return next((value.decode("latin-1") for key, value in self.headers if key.lower() == name.encode()), "")


class SendError(Exception):
    """No whole reply came.

    phase    connect: nothing was sent; head: sent, and no answer; body: the answer broke off, or was too long
    partial  what had come of it
    """

    def __init__(self, phase: Literal["connect", "head", "body"], message: str, partial: RawReply | None) -> None:
        super().__init__(message)
        self.phase = phase
        self.partial = partial


class Connections:
    """A pool of connections, shared by all threads; they are closed when its last user lets go of it."""

    def __init__(self) -> None:
        self._clock = _Clock()
        self._pools: dict[str, httpcore2.ConnectionPool] = {}
        self._lock = threading.Lock()
        weakref.finalize(self, _close, self._pools)

    def send(self, method: str, url: str, headers: Headers, content: bytes, *, deadline: float) -> RawReply:
        """Send one request and read the whole reply, at most `CAP_BYTES`. Raises SendError."""
        self._clock.deadline = deadline
        status, received, body = None, [], bytearray()
        try:
            pool = self._pool(url)
            with pool.stream(method, url, headers=list(headers), content=content, extensions=_TIMEOUTS) as reply:
                status, received = reply.status, reply.headers
                for chunk in reply.iter_stream():
                    body += chunk
                    if len(body) > CAP_BYTES:
                        raise SendError("body", f"the reply is longer than {CAP_BYTES >> 20} MB", None)
        except httpcore2.LocalProtocolError:
            # Its text shows the header that cannot be sent, which may be the key.
            raise SendError("connect", "a header of the request cannot be sent", None) from None
        except _BEFORE_SENDING as error:
            raise SendError("connect", _text(error), None) from error
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError) as error:
            partial = None if status is None else RawReply(status, received, bytes(body))
            raise SendError("head" if partial is None else "body", _text(error), partial) from error
        return RawReply(status, received, bytes(body))

    def _pool(self, url: str) -> httpcore2.ConnectionPool:
        address = urllib.parse.urlsplit(url)
        with self._lock:
            server = f"{address.scheme}://{address.netloc}"
            if server not in self._pools:
                self._pools[server] = self._open(address.scheme, address.hostname or "")
            return self._pools[server]

    def _open(self, scheme: str, host: str) -> httpcore2.ConnectionPool:
        proxy = None if urllib.request.proxy_bypass(host) else urllib.request.getproxies().get(scheme)
        options: dict[str, Any] = {
            "ssl_context": httpx2.create_ssl_context() if scheme == "https" else None,
            "max_connections": None,
            "keepalive_expiry": _IDLE_S,
            "network_backend": _Backend(self._clock),
        }
        if proxy is None:
            return httpcore2.ConnectionPool(**options)
        parts = httpx2.Proxy(proxy)
        return httpcore2.HTTPProxy(proxy_url=str(parts.url), proxy_auth=parts.raw_auth, **options)


_TIMEOUTS = {"timeout": {"connect": _CONNECT_S, "read": _SILENCE_S, "write": _SILENCE_S}}
_BEFORE_SENDING = (
    httpcore2.ConnectError,
    httpcore2.ConnectTimeout,
    httpcore2.ProxyError,
    httpcore2.UnsupportedProtocol,
)


class _Clock(threading.local):
    """The deadline of the request that this thread has under way."""

    deadline = 0.0

    def left(self, most: float | None) -> float:
        """Seconds that a wait may take; never 0, which sockets read as "do not wait"."""
        return max(0.001, min(self.deadline - time.monotonic(), _SILENCE_S if most is None else most))

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self.deadline


class _Backend(httpcore2.NetworkBackend):
    """Opens connections for the pool."""

    def __init__(self, clock: _Clock) -> None:
        self._clock = clock
        self._inner = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        error: Exception = httpcore2.ConnectError(f"{host} has no address")
        for address in self._addresses(host, port):
            if self._clock.passed:
                raise httpcore2.ConnectTimeout("timed out")
            try:
                wait = self._clock.left(timeout)
                return _Stream(self._inner.connect_tcp(address, port, wait, local_address, socket_options), self._clock)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as caught:
                error = caught
        raise error

    def _addresses(self, host: str, port: int) -> list[str]:
        """Look a name up; in a thread of its own, since the system's resolver takes no deadline."""
        found: queue.SimpleQueue[list[str] | OSError] = queue.SimpleQueue()

        def look_up() -> None:
            try:
                found.put([str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)])
            except OSError as error:
                found.put(error)

        threading.Thread(target=look_up, name="resolver", daemon=True).start()
        try:
            answer = found.get(timeout=self._clock.left(_CONNECT_S))
        except queue.Empty:
            raise httpcore2.ConnectTimeout(f"the look-up of {host} timed out") from None
        if isinstance(answer, OSError):
            raise httpcore2.ConnectError(f"{host}: {answer.strerror}")
        return answer


class _Stream(httpcore2.NetworkStream):
    """A connection whose reads and writes end by the deadline of the request that uses it."""

    def __init__(self, inner: httpcore2.NetworkStream, clock: _Clock) -> None:
        self._inner = inner
        self._clock = clock

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._clock.passed:
            raise httpcore2.ReadTimeout("the deadline passed")
        return self._inner.read(max_bytes, self._clock.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _WRITE_BYTES):
            if self._clock.passed:
                raise httpcore2.WriteTimeout("the deadline passed")
            self._inner.write(buffer[start : start + _WRITE_BYTES], self._clock.left(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, self._clock.left(timeout)), self._clock)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _close(pools: Mapping[str, httpcore2.ConnectionPool]) -> None:
    for pool in pools.values():
        pool.close()


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
