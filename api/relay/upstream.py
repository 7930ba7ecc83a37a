"""Requests to the upstream aggregator. ``judge`` interprets the responses.

The operator names the upstream, so it may be anywhere. Its responses are bounded in time and length
all the same, and no redirect is followed: the key goes to the given address.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import httpx2

from api.settings import Settings
from decaysketch.client.access import bearer
from decaysketch.client.delivery import Answer, Held, Later, Outcome, Paused, judge
from decaysketch.client.trust import certificate_fault, trust

__all__ = ["Upstream"]

_CONNECT_S = 10.0
_LONGEST_BYTES = 1 << 20  # of an answer; the description of a stream without its sources is short
_NOT_FOUND, _CONFLICT, _NO_ROOM = 404, 409, 507


class Upstream:
    """The aggregator upstream, and the name of this one there.

    Args:
        settings: they contain its address.
        transport: of httpx2, replaces the network.
    """

    def __init__(self, settings: Settings, transport: Any = None) -> None:
        self.source = settings.upstream_source
        self._timeout_s = settings.upstream_timeout_s
        headers = {"accept-encoding": "identity", "user-agent": "decaysketch-relay"}
        if settings.upstream_key:
            headers["authorization"] = bearer(settings.upstream_key, "upstream_key")
        connect_s = min(_CONNECT_S, self._timeout_s)
        self._client = httpx2.AsyncClient(
            base_url=settings.upstream,
            headers=headers,
            timeout=httpx2.Timeout(self._timeout_s, connect=connect_s),
            transport=transport,
            verify=trust(settings.upstream_ca_file or None, "upstream_ca_file"),
        )

    async def close(self) -> None:
        """Close its connections."""
        await self._client.aclose()

    async def look(self, stream: str) -> Outcome:
        """Return the upstream's information about a stream: ``Taken`` with the fields of
        ``GET /v1/streams/{name}``.
        """
        result = await self._send("GET", _path(stream), params={"sources": "0"})
        return _outcome(result, {"name": stream})

    async def held(self, stream: str, token: str, source: str) -> str | Later | Paused | None:
        """Return the digest of its content from a source, or None if there is none.

        Args:
            stream: of it.
            source: this relay, or a source that it forwards.
            token: of the last post, so that no process responds that has not read that; "": none.
        """
        result = await self._send(
            "HEAD",
            f"{_path(stream)}/sketch",
            params={"source": source},
            headers={"decaysketch-after": token} if token else {},
        )
        if isinstance(result, Answer):
            if token and result.status == _CONFLICT:  # it went back to before that post
                return await self.held(stream, "", source)
            if result.status == _NOT_FOUND:
                return None
            if 200 <= result.status < 300 and "etag" in result.headers:
                return result.headers["etag"].removeprefix("W/").strip('"')
        outcome = _outcome(result, {"name": stream})
        if isinstance(outcome, Later | Paused):
            return outcome
        return Later(f"an answer to HEAD that is none of the aggregator: {outcome}")

    async def post(self, stream: str, blob: bytes, source: str) -> Outcome:
        """Post a source's sketch. Once it is ``Taken`` it is on the upstream's disk."""
        result = await self._send(
            "POST",
            f"{_path(stream)}/sketches",
            params={"source": source},
            headers={"content-type": "application/octet-stream"},
            content=blob,
        )
        return _outcome(result, {"stream": stream, "source": source})

    async def _send(self, method: str, path: str, **request: Any) -> Answer | Exception:
        body = bytearray()
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.stream(method, path, **request) as response,
            ):
                async for part in response.aiter_raw():
                    body += part
                    if len(body) > _LONGEST_BYTES:
                        raise ValueError(f"the response is longer than {_LONGEST_BYTES} bytes")
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status_code, headers, bytes(body))
        except Exception as fault:  # any transport error: no response arrived
            return fault


def _path(stream: str) -> str:
    return f"/v1/streams/{quote(stream, safe='')}"


def _outcome(result: Answer | Exception, expected: dict[str, str]) -> Outcome:
    if isinstance(result, Answer):
        outcome = judge(result, expected)
        if isinstance(outcome, Later) and result.status == _NO_ROOM:  # others may have some
            return Held(outcome.reason, after_s=outcome.after_s)
        return outcome
    if reason := certificate_fault(result):
        return Paused(reason)
    return Later(f"{type(result).__name__}: {result}".rstrip(": "))
