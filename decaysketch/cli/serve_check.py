"""``decaysketch serve-check``: check that an aggregator is reachable, ready and quick, with a right
clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import httpx2
import typer
from rich.table import Table

from decaysketch.cli.output import AsJson, reporting_errors, show
from decaysketch.cli.recipes import ApiKeyFile, CaFile, TimeoutS, api_client
from decaysketch.client.trust import certificate_fault
from decaysketch.families import FAMILIES

__all__ = ["serve_check"]


class Check(NamedTuple):
    """The result of one check."""

    name: str
    ok: bool
    detail: str


def serve_check(
    url: Annotated[str, typer.Argument(help="The aggregator, such as http://localhost:8000.")],
    api_key_file: ApiKeyFile = None,
    ca_file: CaFile = None,
    timeout_s: TimeoutS = 10.0,
    max_latency_s: Annotated[
        float, typer.Option(help="The check fails if a query is slower.")
    ] = 5.0,
    max_clock_s: Annotated[
        float, typer.Option(help="The check fails if clocks differ by more.")
    ] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Check an aggregator; exit status 0 if all is well, 1 if not."""
    with reporting_errors(), api_client(url, api_key_file, timeout_s, ca_file) as client:
        checks = [
            _checked("health", lambda: _status(client, "/healthz")),
            _checked("ready", lambda: _status(client, "/readyz")),
            _checked("streams", lambda: _streams(client)),
            _checked("query", lambda: _query(client, max_latency_s)),
            _checked("clock", lambda: _clock(client, max_clock_s)),
        ]
        table = Table("check", "", "what was found")
        for check in checks:
            table.add_row(check.name, "ok" if check.ok else "[red]fault[/red]", check.detail)
        well = all(check.ok for check in checks)
        content = {"url": url, "ok": well, "checks": [check._asdict() for check in checks]}
        show(as_json, content, table)
        if not well:
            raise typer.Exit(1)


def _checked(name: str, look: Callable[[], tuple[bool, str]]) -> Check:
    try:
        return Check(name, *look())
    except (httpx2.HTTPError, ValueError, KeyError, TypeError) as fault:
        reason = certificate_fault(fault) or f"{type(fault).__name__}: {fault}"
        return Check(name, False, reason)


def _status(client: httpx2.Client, path: str) -> tuple[bool, str]:
    answer = client.get(path)
    return answer.status_code == 200, f"{answer.status_code}: {answer.text[:200]}"


def _list(client: httpx2.Client) -> list[dict[str, Any]]:
    streams: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        answer = client.get("/v1/streams", params={"limit": 1000, "after": after})
        if answer.status_code != 200:
            raise ValueError(f"{answer.status_code}: {answer.text[:200]}")
        page = answer.json()
        streams += page["streams"]
        after = page.get("next")
    return streams


def _streams(client: httpx2.Client) -> tuple[bool, str]:
    streams = _list(client)
    rows = sum(stream["rows"] for stream in streams)
    return True, f"{len(streams):,} streams, {rows:,} rows stored"


def _query(client: httpx2.Client, limit_s: float) -> tuple[bool, str]:
    """Measure the time of a count over everything, in the largest stream."""
    streams = _list(client)
    if not streams:
        return True, "no stream to query"
    name = max(streams, key=lambda stream: stream["rows"])["name"]
    path = f"/v1/streams/{quote(name, safe='')}"
    state = client.get(path).json()
    known = [time for time in (state.get("clock"), state["newest"]) if time is not None]
    family = FAMILIES[state["family"]]
    counted = "count" if "count" in family.questions else "key_total"
    asked: dict[str, Any] = {"aggregate": counted, "now": max(known, default=0)}
    kind = family.input
    if kind.decay == "query":
        widest = None if kind.age_bound is None else state["params"][kind.age_bound]
        asked["decay"] = {"kind": "none"} if widest is None else {"kind": "window", "width": widest}
    started = time.monotonic()
    answer = client.post(f"{path}/query", json={"queries": [asked]})
    took_s = time.monotonic() - started
    return (
        answer.status_code == 200 and took_s <= limit_s,
        f"stream {name!r}, {answer.status_code} after {1000 * took_s:.1f} ms",
    )


def _clock(client: httpx2.Client, limit_s: float) -> tuple[bool, str]:
    """Return the difference to the server's Date. It has full seconds, rounded down."""
    before = datetime.now(UTC)
    said = parsedate_to_datetime(client.get("/healthz").headers["date"])
    after = datetime.now(UTC)
    middle = before + (after - before) / 2
    ahead_s = (said - middle).total_seconds() + 0.5
    error_s = 0.5 + (after - before).total_seconds() / 2
    return (
        abs(ahead_s) - error_s <= limit_s,
        f"the server is {ahead_s:+.1f} s ahead, within {error_s:.1f} s",
    )
