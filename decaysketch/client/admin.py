"""Monitors of an aggregator, for who defines and watches them.

Small, and synchronous: what is asked is asked again until it is answered, as by
:class:`~decaysketch.client.posting.Poster`, and events come as an iterator that connects again.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx2

from decaysketch.client.access import bearer, plain_url
from decaysketch.client.asking import Asking, PostRefusedError
from decaysketch.client.delivery import Answer, Backoff, Later, Taken, judge
from decaysketch.client.errors import ClientError
from decaysketch.client.following import LONGEST_EVENT_BYTES, SILENT_S
from decaysketch.monitor import Spec

__all__ = ["Admin", "MonitorEvent"]

_OK, _NO_CONTENT = 200, 204
_RETRY_S = 3.0  # as the server asks
_LONGEST_RETRY_S = 60.0


@dataclass(frozen=True, slots=True)
class MonitorEvent:
    """What is said of a monitor.

    Attributes:
        monitor: its name.
        state: "calm", "firing", "uncertain", or "gone" where it was deleted.
        reason: why it is uncertain.
        value, lower, upper: the estimate, and the ends that hold what sites hold back, too; None
            where there is none.
        threshold: the line that these are compared with.
        pending_at_most: what all sites may hold back together.
        silent: sites that nothing is known of now.
        alert: "inactive", "pending" or "firing".
        fields: all that the server said.
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
    fields: Mapping[str, Any]

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """From what the server says of a monitor.

        Raises:
            ClientError: it says something else.
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
                fields=fields,
            )
        except (KeyError, TypeError) as fault:
            raise ClientError(f"what the server says of a monitor lacks {fault}") from None


class Admin:
    """The monitors of an aggregator. Threads may share it.

    Args:
        url: the aggregator, such as ``http://localhost:8000``.
        key: sent as a bearer token: of role "admin" to define and delete, "read" for the rest.
        timeout_s: patience for one answer.
        attempts: how often one request is tried before it counts as failed.
        trust_env: whether proxies and certificates are taken from the environment.
        transport: of httpx2, in place of the network.
        wait: called with seconds between two attempts.

    Raises:
        ParameterError: the key is none, or the address shows one or is none.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout_s: float = 30.0,
        attempts: int = 6,
        trust_env: bool = True,
        transport: httpx2.BaseTransport | None = None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        headers = {"user-agent": "decaysketch"}
        if key is not None:
            headers["authorization"] = bearer(key, "key")
        self._client = httpx2.Client(
            base_url=plain_url(url, "url"), headers=headers, timeout=timeout_s,
            trust_env=trust_env, transport=transport,
        )  # fmt: skip
        self._asking = Asking(self._client, attempts=attempts, wait=wait)
        self._timeout_s, self._wait = timeout_s, wait

    def put_monitor(
        self, stream: str, monitor: str, spec: Spec | Mapping[str, Any]
    ) -> dict[str, Any]:
        """Define a monitor, or another one under its name; its state, with the posts that it is
        expected to cost. The same spec again changes nothing.

        Raises:
            PostRefusedError: the aggregator refuses it, and says why.
            UnreachableError: there was no answer.
        """
        form = spec.to_dict() if isinstance(spec, Spec) else dict(spec)
        path = _path(stream, monitor)
        return self._asking.fields("PUT", path, {"monitor": monitor}, json=form)

    def get_monitor(self, stream: str, monitor: str) -> dict[str, Any]:
        """The state of a monitor, with its sites and what it costs. Raises as put_monitor does."""
        return self._asking.fields("GET", _path(stream, monitor), {"monitor": monitor})

    def list_monitors(self, stream: str) -> list[dict[str, Any]]:
        """The states of all monitors of a stream. Raises as put_monitor does."""
        fields = self._asking.fields("GET", _path(stream), {})
        listed = fields.get("monitors")
        if not isinstance(listed, list):
            raise ClientError(f"{_path(stream)} has no list of monitors; is it an aggregator?")
        return listed

    def delete_monitor(self, stream: str, monitor: str) -> bool:
        """Delete a monitor; whether there was one. Raises as put_monitor does."""
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
        """What is so of every monitor of a stream, then whatever changes, without end.

        Where the connection ends it is made again, with backoff; what changed meanwhile is told by
        what is so then.

        Raises:
            PostRefusedError: the aggregator refuses to tell.
            ClientError: it tells what is no state of a monitor.
        """
        backoff = Backoff(_RETRY_S, _LONGEST_RETRY_S, random.Random())
        while True:
            after_s = 0.0
            try:
                with self._client.stream(
                    "GET", f"/v1/streams/{quote(stream, safe='')}/events",
                    headers={"accept": "text/event-stream"},
                    timeout=httpx2.Timeout(SILENT_S, connect=self._timeout_s),
                ) as response:  # fmt: skip
                    if response.status_code == _OK:
                        source = httpx2.EventSource(response, max_event_size=LONGEST_EVENT_BYTES)
                        for event in source:
                            backoff.reset()
                            if event.event in ("state", "gone"):
                                said = _object(event.data)
                                if "topk" not in said:  # which is the name of a list
                                    yield MonitorEvent.of(said)
                    else:
                        after_s = _later_s(response)
            except httpx2.TransportError:
                pass  # as where it ends: it is made again
            self._wait(max(backoff.next_s(), after_s))

    def close(self) -> None:
        """Let its connections go."""
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


def _path(stream: str, monitor: str | None = None) -> str:
    path = f"/v1/streams/{quote(stream, safe='')}/monitors"
    return path if monitor is None else f"{path}/{quote(monitor, safe='')}"


def _object(data: str) -> dict[str, Any]:
    try:
        form = json.loads(data)
    except (ValueError, RecursionError):
        form = None
    if not isinstance(form, dict):
        raise ClientError(f"an event of the server is no object: {data:.100}")
    return form


def _later_s(response: httpx2.Response) -> float:
    """When to ask again, at the earliest.

    Raises:
        PostRefusedError: it would be refused again.
    """
    headers = {name.lower(): value for name, value in response.headers.items()}
    answer = Answer(response.status_code, headers, response.read())
    outcome = judge(answer, {})
    if isinstance(outcome, Later):
        return outcome.after_s
    assert not isinstance(outcome, Taken)
    raise PostRefusedError(f"events are refused: {outcome.reason}", answer.status, "")
