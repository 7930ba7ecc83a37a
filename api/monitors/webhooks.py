"""Permitted alert receivers, and one request to a receiver.

The client that defines a monitor chooses the webhook's address. This server makes the request, and
may reach hosts that the client may not. So

- it goes to origins that the operator has listed, and there are none by default
- the server resolves the name and checks all its addresses. It connects to exactly the checked
  address, so a later name change does not matter
- private, local and reserved addresses are rejected except for networks that the operator has
  listed
- a redirect is a failure. Only the first line of a response is read, up to a few bytes
- the complete request, from the name to the response, must end within ``TIMEOUT_S``

The request is signed: ``Decaysketch-Signature: t=<seconds since 1970>,v1=<hex>``, HMAC-SHA256 of
``<seconds>.<body>`` under the settings' secret. The receiver compares it, and rejects requests
older than a few minutes.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import re
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

from api.origins import Origin
from api.settings import Settings

__all__ = ["TIMEOUT_S", "WebhookError", "Webhooks", "is_public", "signed"]

TIMEOUT_S = 10.0

_LINE_BYTES = 1024
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: |\r)")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Not of the whole internet although ``ipaddress`` calls them global: protocol assignments, 6to4
# relays (RFC 7526), site-local addresses (RFC 3879), ORCHIDs (RFC 7343), examples (RFC 9637).
_SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        ("192.0.0.0/24", "192.88.99.0/24", "fec0::/10", "2001:20::/28", "3fff::/20"),
    )
)
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)  # RFC 5214: before the IPv4 address, in the interface's half

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class WebhookError(Exception):
    """An alert may not be sent there, or could not be. The text explains why to an operator."""


@dataclass(frozen=True)
class Webhooks:
    """The operator's permissions.

    Args:
        origins: the permitted destinations.
        networks: permitted networks with addresses that are not public.
        secret: signs requests.
    """

    origins: frozenset[Origin] = frozenset()
    networks: Sequence[Network] = ()
    secret: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the permissions from settings that have been checked."""
        return cls(
            frozenset(map(Origin.of, settings.webhook_origins.split())),
            [ipaddress.ip_network(each) for each in settings.webhook_networks.split()],
            settings.webhook_secret.encode(),
        )

    def check(self, url: str) -> Origin:
        """Return the origin of a permitted alert URL.

        Raises:
            ValueError: it cannot be read, or is not allowed.
        """
        origin = Origin.of(url)
        if origin not in self.origins:
            raise ValueError(
                f"is of {origin}, which is not allowed; the operator lists allowed origins in "
                "webhook_origins"
            )
        return origin

    async def send(self, url: str, body: bytes, now_s: int) -> None:
        """Send an alert. On return the receiver has responded with success (2xx).

        Args:
            url: the destination.
            body: JSON.
            now_s: the time, signed with the body.

        Raises:
            WebhookError: it may not be sent there, or the receiver did not respond with success in
                time.
        """
        try:
            origin = self.check(url)
        except ValueError as error:
            raise WebhookError(f"the address {error}") from None
        head = _head(url, origin, body, signed(self.secret, body, now_s))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                status = await self._exchange(origin, head + body)
        except TimeoutError:
            raise WebhookError(f"no response within {TIMEOUT_S:g} s") from None
        except (
            OSError,
            ValueError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ) as error:
            raise WebhookError(f"{type(error).__name__}: {error}"[:200]) from None
        if not 200 <= status < 300:
            raise WebhookError(f"answered with {status}")

    async def _exchange(self, origin: Origin, request: bytes) -> int:
        address = await self._resolved(origin)
        reader, writer = await asyncio.open_connection(
            str(address),
            origin.port,
            limit=_LINE_BYTES,
            ssl=ssl.create_default_context() if origin.scheme == "https" else None,
            server_hostname=origin.host if origin.scheme == "https" else None,
        )
        try:
            writer.write(request)
            await writer.drain()
            line = await reader.readuntil(b"\n")
        finally:
            writer.transport.abort()
        found = _STATUS.match(line)
        if found is None:
            raise WebhookError("the response is not HTTP")
        return int(found[1])

    async def _resolved(self, origin: Origin) -> Address:
        """Return a permitted address of the origin. The connection is made to this one."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
        addresses = [ipaddress.ip_address(each[4][0]) for each in found]
        refused = [each for each in addresses if not self.reaches(each)]
        if refused or not addresses:  # one bad address is enough, because any of them may be used
            raise WebhookError(
                f"{origin.host} is {', '.join(map(str, refused)) or 'nowhere'}, not public; the "
                "operator lists allowed private networks in webhook_networks"
            )
        return addresses[0]

    def reaches(self, address: Address) -> bool:
        """Return whether a connection may be made to an address."""
        return is_public(address) or any(address in network for network in self.networks)


def is_public(address: Address) -> bool:
    """Return whether an address is public, and so is the one that it embeds."""
    if not address.is_global or address.is_multicast or address.is_reserved:
        return False
    if any(address in network for network in _SPECIAL):
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if int(address) >> 32 & 0xFFFF_FFFF in _ISATAP:
            return False
        inner = [address.ipv4_mapped, address.sixtofour]
        if address.teredo is not None:
            inner.append(address.teredo[1])
        if address in _NAT64:
            inner.append(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
        return all(each is None or is_public(each) for each in inner)
    return True


def signed(secret: bytes, body: bytes, now_s: int) -> str:
    """Return the signature header's value."""
    digest = hmac.new(secret, b"%d." % now_s + body, hashlib.sha256).hexdigest()
    return f"t={now_s},v1={digest}"


def _head(url: str, origin: Origin, body: bytes, signature: str) -> bytes:
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = str(origin).partition("://")[2]
    lines = [
        f"POST {target} HTTP/1.1",
        f"Host: {host}",
        "User-Agent: decaysketch",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        f"Decaysketch-Signature: {signature}",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii")
