"""Check everything that a bridge needs: file, streams, derived streams, clock and broker."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime

import httpx2

from decaysketch.client import ClientError
from decaysketch.client.access import bearer
from decaysketch.client.retrying_client import Asking
from decaysketch.client.trust import certificate_fault, trust
from decaysketch.errors import DecaySketchError
from decaysketch.families import recipe_from_dict
from decaysketch.ingest.bridge.broker import Connection
from decaysketch.ingest.bridge.config import Config
from decaysketch.ingest.bridge.message_warnings import StoredCounts, remedy
from decaysketch.ingest.bridge.metrics import Metrics
from decaysketch.ingest.bridge.views import look_at, names_of
from decaysketch.ingest.columns import check_takes_readings
from decaysketch.ingest.documents import DocumentMap
from decaysketch.ingest.formats import check_suited

__all__ = ["checks"]

_CLOCK_OFF_S = 60.0
_TIMEOUT_S = 10.0


def checks(config: Config) -> Iterator[tuple[str, str | None]]:
    """Yield each check with its fault. None: no fault."""
    key = config.api_key()
    headers = {} if key is None else {"authorization": bearer(key, "server.key_file")}
    clock, kept = None, StoredCounts(config.spool, config.map).counts
    verify = trust(config.server.ca_file, "server.ca_file")
    with httpx2.Client(
        base_url=config.server.url, headers=headers, timeout=_TIMEOUT_S, verify=verify
    ) as client:
        asking = Asking(client, attempts=1)
        for stream in config.streams:
            fault, date, views, warnings = _stream(client, stream, config.maps_of(stream))
            clock = clock or date
            yield f"stream {stream}", fault
            for warning in _of_readings(config, stream, warnings, kept.get(stream, {})):
                yield f"readings of {stream}", warning
            for view in views:
                yield f"view {view}", _view(asking, view, stream)
    if clock is not None:
        ahead_s = time.time() - parsedate_to_datetime(clock).timestamp()
        fault = None
        if abs(ahead_s) > _CLOCK_OFF_S:
            fault = f"this machine is {ahead_s:.0f} s ahead of the aggregator"
        yield "clock", fault
    if config.mqtt is None:
        return
    fault = None
    try:
        connection = Connection(config, Metrics(), passing=True)
        connection.open(_TIMEOUT_S)
        connection.close()
    except (DecaySketchError, OSError) as error:
        fault = str(error)
    yield f"broker {config.mqtt.broker}", fault


def _of_readings(
    config: Config, stream: str, warnings: list[str], forwarded: Mapping[str, int]
) -> Iterator[str]:
    """Yield the aggregator's warnings about a stream, and the bridge's own count if it has none."""
    cure = remedy(config.maps_of(stream))
    replaced = forwarded.get("replaced", 0)
    for warning in warnings:
        if "replaced" in warning:
            warning, replaced = f"{warning} ({cure})", 0
        yield warning
    if replaced:
        yield (
            f"this bridge forwarded at least {replaced:,} reading{'s' * (replaced != 1)} that "
            f"replaced another one with the same id before the aggregator received it ({cure})"
        )


def _stream(
    client: httpx2.Client, stream: str, maps: Sequence[DocumentMap]
) -> tuple[str | None, str | None, list[str], list[str]]:
    """Return a stream's fault, the server's time, the derived streams, and the server's
    warnings.
    """
    try:
        answer = client.get(f"/v1/streams/{stream}", params={"sources": 0})
    except httpx2.HTTPError as fault:
        reason = certificate_fault(fault) or f"the aggregator cannot be reached: {fault}"
        return reason, None, [], []
    date = answer.headers.get("date")
    if answer.status_code != 200:
        return f"the aggregator responds with {answer.status_code}{_detail(answer)}", date, [], []
    try:
        told = answer.json()
        if told["secret_ids"]:
            return "its ids are secret, so it accepts raw observations only", date, [], []
        form = {name: told[name] for name in ("family", "params", "decay") if told.get(name)}
        recipe = recipe_from_dict(form)
        check_takes_readings(recipe)
        for each in maps:
            check_suited(each, recipe, "a map of it")
        return None, date, names_of(told, stream), [str(each) for each in told["warnings"]]
    except (ValueError, KeyError, TypeError, ClientError) as fault:
        return str(fault), date, [], []


def _view(asking: Asking, view: str, stream: str) -> str | None:
    """Return the reason why a derived stream is not fed."""
    try:
        look_at(asking, view, stream)
    except DecaySketchError as fault:
        return f"it is not fed: {fault}"
    return None


def _detail(answer: httpx2.Response) -> str:
    try:
        return f": {answer.json()['detail']}"
    except (ValueError, KeyError, TypeError):
        return ""  # the response is not from an aggregator
