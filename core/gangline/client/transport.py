"""What the blocking and the asynchronous client share of HTTP: timeouts, headers, failures as our errors."""

from __future__ import annotations

from typing import Any, TypeVar

from gangline.client.address import Address
from gangline.client.api import Call
from gangline.client.lean import httpx
from gangline.client.retry import Unsent
from gangline.model.errors import Unavailable

T = TypeVar("T")

CONNECT_S = 5.0
ANSWER_S = 60.0  # beyond the time a long poll is held
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=32)


def client_options(address: Address) -> dict[str, Any]:
    """Arguments both kinds of httpx client take. Loopback is never asked for through a proxy."""
    headers = {"Authorization": f"Bearer {address.token}"} if address.token else {}
    return {"base_url": address.base_url, "headers": headers, "trust_env": not address.loopback,
            # Without TLS, loading certificates would cost each client 60 ms for nothing.
            "verify": address.base_url.startswith("https:")}


def timeout(call: Call[T]) -> httpx.Timeout:
    return httpx.Timeout(ANSWER_S, connect=CONNECT_S, read=call.hold_s + ANSWER_S)


def read_reply(call: Call[T], response: httpx.Response) -> T:
    """The typed answer in a response, or the error it names."""
    try:
        data = response.json() if response.content else None
    except ValueError:
        data = None
    return call.answer(response.status_code, data)


def lost(address: Address, exc: httpx.TransportError, fix: str) -> Unavailable:
    """Why no answer came, naming the address and what to do."""
    why = str(exc) or type(exc).__name__
    if isinstance(exc, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
        return Unsent(f"no server answers at {address.url}: {why}", fix=fix)
    return Unavailable(f"the server at {address.url} did not answer: {why}", fix=fix)
