"""Define and follow monitors, and describe streams.

Small and synchronous. Requests are repeated until answered, as in
:class:`~decaysketch.client.posting.Poster`. Events arrive as an iterator that reconnects.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

import httpx2

from decaysketch.client.access import bearer, plain_url
from decaysketch.client.delivery import Answer, Backoff, Later, Taken, judge
from decaysketch.client.errors import ClientError
from decaysketch.client.event_stream import LONGEST_EVENT_BYTES, SILENT_S
from decaysketch.client.retrying_client import Asking, PostRefusedError, UnreachableError
from decaysketch.client.trust import certificate_fault, trust
from decaysketch.monitor import Spec

__all__ = ["Admin", "MonitorEvent"]

_OK, _NO_CONTENT = 200, 204
_CONFIGURED = (  # by its creation
    "family", "params", "decay", "secret_ids", "bind_keys", "from_level",
)  # fmt: skip
_OTHERS = {"topk", "function"}  # names of a list or function in an event that it is gone
_RETRY_S = 3.0  # as the server asks
_LONGEST_RETRY_S = 60.0


@dataclass(frozen=True, slots=True)
class MonitorEvent:
    """One event about a monitor.

    Attributes:
        monitor: its name.
        state: "calm", "firing", "uncertain", or "gone" after deletion.
        reason: why it is uncertain.
        value, lower, upper: the estimate, and bounds that include data that sources hold back. None
            if there is none.
        threshold: the threshold.
        pending_at_most: the most that all sources together may hold back.
        silent: sources that take part and did not report within their lease.
        alert: "inactive", "pending" or "firing".
        explanation: the state in one sentence.
        fields: the complete event.
    """

    monitor: str
    state: str
    reason: str | None
    value: float | None
    lower: float | None
    upper: float | None
    threshold: float | None
    pending_at_most: float | None
    silent: tuple[str, ...]
    alert: str | None
    explanation: str | None
    fields: Mapping[str, Any]

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Build from the server's JSON.

        Raises:
            ClientError: the JSON is not a monitor event.
        """
        try:
            alert = fields.get("alert")
            return cls(
                monitor=str(fields["monitor"]),
                state=str(fields.get("state", "gone")),
                reason=fields.get("reason"),
                value=fields.get("value"),
                lower=fields.get("lower"),
                upper=fields.get("upper"),
                threshold=fields.get("threshold"),
                pending_at_most=fields.get("pending_at_most"),
                silent=tuple(map(str, fields.get("silent", ()))),
                alert=None if alert is None else str(alert["phase"]),
                explanation=fields.get("explanation"),
                fields=fields,
            )
        except (KeyError, TypeError) as fault:
            raise ClientError(f"the server's response about a monitor lacks {fault}") from None


class Admin:
    """Monitors and streams of an aggregator. Threads may share it.

    Args:
        url: the aggregator, such as ``http://localhost:8000``.
        key: bearer token. Role "admin" to define and delete, "read" for the rest.
        timeout_s: seconds to wait for one response.
        attempts: tries per request before it fails.
        trust_env: whether to read proxies and certificates from the environment.
        ca_file: PEM file with the only certificate authorities to trust, for a private one.
        transport: an httpx2 transport that replaces the network.
        wait: called with the seconds between two attempts.

    Raises:
        ParameterError: the key is invalid, or the URL is invalid or contains a key.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout_s: float = 30.0,
        attempts: int = 6,
        trust_env: bool = True,
        ca_file: str | os.PathLike[str] | None = None,
        transport: httpx2.BaseTransport | None = None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        headers = {"user-agent": "decaysketch"}
        if key is not None:
            headers["authorization"] = bearer(key, "key")
        self._client = httpx2.Client(
            base_url=plain_url(url, "url"), headers=headers, timeout=timeout_s,
            trust_env=trust_env, verify=trust(ca_file, "ca_file"), transport=transport,
        )  # fmt: skip
        self._asking = Asking(self._client, attempts=attempts, wait=wait)
        self._timeout_s, self._wait = timeout_s, wait

    def stream(self, stream: str) -> dict[str, Any]:
        """Return a stream's state without its sources. Raises as put_monitor does."""
        path = f"{_stream_path(stream)}?sources=0"
        return self._asking.fields("GET", path, {"name": stream})

    def describe_stream(
        self, stream: str, *, unit: str | None = None, description: str | None = None
    ) -> dict[str, Any]:
        """Set the texts that the dashboard shows with a stream's values. Return its state.

        Args:
            stream: its name. It must exist.
            unit: the unit of the values, such as ``"°C"``, at most 40 characters. An empty text
                removes it. None: it stays.
            description: the measured quantity, in one line, at most 300 characters. The same.

        Raises as put_monitor does.
        """
        texts = {"unit": unit, "description": description}
        given = {name: text for name, text in texts.items() if text is not None}
        before = self.stream(stream)
        form = {name: before[name] for name in _CONFIGURED if before.get(name)}
        return self._asking.fields(
            "PUT", _stream_path(stream), {"name": stream}, json={**form, **given}
        )

    def put_monitor(
        self, stream: str, monitor: str, spec: Spec | Mapping[str, Any]
    ) -> dict[str, Any]:
        """Define or replace a monitor. Return its state and the expected number of posts.

        The same specification again changes nothing.

        Raises:
            PostRefusedError: the aggregator rejected it. The message has the reason.
            UnreachableError: there was no response.
        """
        form = spec.to_dict() if isinstance(spec, Spec) else dict(spec)
        path = _path(stream, monitor)
        return self._asking.fields("PUT", path, {"monitor": monitor}, json=form)

    def get_monitor(self, stream: str, monitor: str) -> dict[str, Any]:
        """Return a monitor's state, sources and cost. Raises as put_monitor does."""
        return self._asking.fields("GET", _path(stream, monitor), {"monitor": monitor})

    def list_monitors(self, stream: str) -> list[dict[str, Any]]:
        """Return the states of all monitors in a stream. Raises as put_monitor does."""
        fields = self._asking.fields("GET", _path(stream), {})
        listed = fields.get("monitors")
        if not isinstance(listed, list):
            raise ClientError(f"{_path(stream)} has no list of monitors; is it an aggregator?")
        return listed

    def monitor_history(
        self, stream: str, monitor: str, *, start: str | None = None, stop: str | None = None,
        limit: int = 1000, group: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The states that a monitor had, oldest first: ``{"monitor", "states", "complete"}``.

        Args:
            start, stop: from and before this time: seconds since 1970, a date with its zone, or a
                time length ago such as ``"6h"``.
            limit: at most this many states, the newest, from 1 to 1000.
            group: the keys of a group, if the monitor has groups: the states of this group.

        Raises as put_monitor does.
        """
        key = None if group is None else json.dumps(dict(group), ensure_ascii=False)
        given = {"from": start, "to": stop, "limit": str(limit), "group": key}
        params = {name: text for name, text in given.items() if text is not None}
        path = f"{_path(stream, monitor)}/history?{urlencode(params)}"
        return self._asking.fields("GET", path, {"monitor": monitor})

    def delete_monitor(self, stream: str, monitor: str) -> bool:
        """Delete a monitor. Return whether it existed. Raises as put_monitor does."""
        try:
            self._asking.answer(
                "DELETE", _path(stream, monitor), lambda answer: answer.status == _NO_CONTENT, {}
            )
        except PostRefusedError as fault:
            if fault.kind == "unknown-monitor":
                return False
            raise
        return True

    def watch(self, stream: str) -> Iterator[MonitorEvent]:
        """Yield every monitor's current state, then every change in the stream, without end.

        After a lost connection it reconnects with backoff, and the current states cover the gap.

        Raises:
            PostRefusedError: the aggregator rejected the request.
            ClientError: an event is not a monitor state.
        """
        backoff = Backoff(_RETRY_S, _LONGEST_RETRY_S, random.Random())
        while True:
            after_s = 0.0
            try:
                with self._client.stream(
                    "GET", f"{_stream_path(stream)}/events",
                    headers={"accept": "text/event-stream"},
                    timeout=httpx2.Timeout(SILENT_S, connect=self._timeout_s),
                ) as response:  # fmt: skip
                    if response.status_code == _OK:
                        source = httpx2.EventSource(response, max_event_size=LONGEST_EVENT_BYTES)
                        for event in source:
                            backoff.reset()
                            if event.event in ("state", "gone"):
                                said = _object(event.data)
                                if not said.keys() & _OTHERS:
                                    yield MonitorEvent.of(said)
                    else:
                        after_s = _later_s(response)
            except httpx2.TransportError as fault:  # as where it ends: it is made again
                if reason := certificate_fault(fault):
                    raise UnreachableError(f"no events of {stream!r}: {reason}") from None
            self._wait(max(backoff.next_s(), after_s))

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _stream_path(stream: str) -> str:
    return f"/v1/streams/{quote(stream, safe='')}"


def _path(stream: str, monitor: str | None = None) -> str:
    path = f"{_stream_path(stream)}/monitors"
    return path if monitor is None else f"{path}/{quote(monitor, safe='')}"


def _object(data: str) -> dict[str, Any]:
    try:
        form = json.loads(data)
    except (ValueError, RecursionError):
        form = None
    if not isinstance(form, dict):
        raise ClientError(f"an event from the server is not an object: {data:.100}")
    return form


def _later_s(response: httpx2.Response) -> float:
    """Return the seconds until the next attempt.

    Raises:
        PostRefusedError: another attempt would be rejected too.
    """
    headers = {name.lower(): value for name, value in response.headers.items()}
    answer = Answer(response.status_code, headers, response.read())
    outcome = judge(answer, {})
    if isinstance(outcome, Later):
        return outcome.after_s
    assert not isinstance(outcome, Taken)
    raise PostRefusedError(f"events are rejected: {outcome.reason}", answer.status, "")
