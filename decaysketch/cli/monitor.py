"""``decaysketch monitor``: alerts of an aggregator's streams, defined, listed and watched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from decaysketch.cli.output import AsJson, CommandError, number, reporting_errors, show
from decaysketch.cli.recipes import ApiKeyFile, CaFile, TimeoutS
from decaysketch.client.admin import Admin, MonitorEvent
from decaysketch.monitor import group_name

__all__ = ["Stream", "Url", "connected", "monitor"]

monitor = typer.Typer(no_args_is_help=True, help="Monitors of a stream: alerts at a threshold.")
Url = Annotated[str, typer.Argument(help="The aggregator, such as http://localhost:8000.")]
Stream = Annotated[str, typer.Argument(help="Name of the stream.")]
Name = Annotated[str, typer.Argument(help="Name of the monitor.")]
_LONGEST_SPEC = 1 << 20


@contextmanager
def connected(
    url: str, key_file: Path | None, timeout_s: float, ca_file: Path | None
) -> Iterator[Admin]:
    """Yield a client with the key in the file."""
    key = None
    if key_file is not None:
        key = key_file.read_text(encoding="ascii", errors="replace")
    with Admin(url, key, timeout_s=timeout_s, ca_file=ca_file) as admin:
        yield admin


@monitor.command("list")
def list_(
    url: Url,
    stream: Stream,
    api_key_file: ApiKeyFile = None,
    ca_file: CaFile = None,
    timeout_s: TimeoutS = 10.0,
    as_json: AsJson = False,
) -> None:
    """List the monitors on a stream, each with its state and the reason."""
    with reporting_errors(), connected(url, api_key_file, timeout_s, ca_file) as admin:
        _show(as_json, admin.list_monitors(stream))


@monitor.command("put")
def put(
    url: Url,
    stream: Stream,
    name: Name,
    spec: Annotated[
        Path, typer.Argument(help="JSON file, the output of Threshold(...).to_dict().")
    ],
    api_key_file: ApiKeyFile = None,
    ca_file: CaFile = None,
    timeout_s: TimeoutS = 10.0,
    as_json: AsJson = False,
) -> None:
    """Define a monitor, and show its state."""
    with reporting_errors(), connected(url, api_key_file, timeout_s, ca_file) as admin:
        _show(as_json, [admin.put_monitor(stream, name, _spec(spec))])


@monitor.command("delete")
def delete(
    url: Url,
    stream: Stream,
    name: Name,
    api_key_file: ApiKeyFile = None,
    ca_file: CaFile = None,
    timeout_s: TimeoutS = 10.0,
) -> None:
    """Delete a monitor. It is an error if there is none."""
    with reporting_errors(), connected(url, api_key_file, timeout_s, ca_file) as admin:
        if not admin.delete_monitor(stream, name):
            raise CommandError(f"stream {stream!r} has no monitor {name!r}")


@monitor.command("groups")
def groups(
    url: Url,
    stream: Stream,
    name: Name,
    api_key_file: ApiKeyFile = None,
    ca_file: CaFile = None,
    timeout_s: TimeoutS = 10.0,
    as_json: AsJson = False,
) -> None:
    """Show the groups of a monitor with their states, those that fire first."""
    with reporting_errors(), connected(url, api_key_file, timeout_s, ca_file) as admin:
        found = admin.get_monitor(stream, name)
    table = Table("group", "state", "alert", "value", "interval", "since")
    for each in found.get("groups", ()):
        ends = f"{_number(each['lower'])} to {_number(each['upper'])}"
        said = group_name(each["by"]), each["state"], each["alert"]["phase"]
        table.add_row(*map(Text, said), _number(each["value"]), ends, _time(each["since"]))
    show(as_json, found.get("groups", []), table)
    if not as_json:
        typer.echo(found["explanation"])


@monitor.command("history")
def history(
    url: Url,
    stream: Stream,
    name: Name,
    start: Annotated[
        str | None,
        typer.Option("--from", help="A date with its zone, or a duration before now, such as 6h."),
    ] = None,
    stop: Annotated[str | None, typer.Option("--to", help="The same form. Default: now.")] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=1000, help="Maximum number of states, the newest ones.")
    ] = 1000,
    group: Annotated[
        str | None,
        typer.Option(help="""Only this group, by its keys as JSON, such as {"site": "a"}."""),
    ] = None,
    api_key_file: ApiKeyFile = None,
    ca_file: CaFile = None,
    timeout_s: TimeoutS = 10.0,
    as_json: AsJson = False,
) -> None:
    """Show the states that a monitor had, oldest first."""
    keys = None if group is None else _object(group, "--group")
    with reporting_errors(), connected(url, api_key_file, timeout_s, ca_file) as admin:
        found = admin.monitor_history(stream, name, start=start, stop=stop, limit=limit, group=keys)
    table = Table("since", "until", "state", "alert", "explanation")
    for each in found["states"]:
        times = _time(each["since"]), _time(each["until"])
        said = each["state"], each["alert"], each["explanation"]
        table.add_row(*times, *(Text(str(text)) for text in said))
    show(as_json, found["states"], table)
    if not found["complete"] and not as_json:
        typer.echo(f"Older states are not shown; --limit is {limit}.")


def _time(at: float | None) -> str:
    return "now" if at is None else datetime.fromtimestamp(at, UTC).isoformat(" ", "seconds")


@monitor.command("watch")
def watch(
    url: Url,
    stream: Stream,
    api_key_file: ApiKeyFile = None,
    ca_file: CaFile = None,
    timeout_s: TimeoutS = 10.0,
    events: Annotated[int | None, typer.Option(min=1, help="Stop after this many.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the states of a stream's monitors, a line for each, until interrupted."""
    with reporting_errors(), connected(url, api_key_file, timeout_s, ca_file) as admin:
        for count, event in enumerate(admin.watch(stream), 1):
            typer.echo(json.dumps(event.fields) if as_json else _line(event))
            if count == events:
                return


def _line(event: MonitorEvent) -> str:
    if event.explanation is not None:
        return f"{event.monitor}: {event.state}. {event.explanation}"
    return f"{event.monitor}: {_said(event)}"


def _said(event: MonitorEvent) -> str:
    return f"{event.state} ({event.reason})" if event.reason else event.state


def _number(value: float | None) -> str:
    return "-" if value is None else number(value)


def _spec(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    if len(content) > _LONGEST_SPEC:
        raise CommandError(f"{path} has {len(content)} bytes; expected at most {_LONGEST_SPEC}")
    return _object(content, str(path))


def _object(text: str | bytes, name: str) -> dict[str, Any]:
    try:
        form = json.loads(text)
    except (ValueError, RecursionError):
        form = None
    if not isinstance(form, dict):
        raise CommandError(f"{name} does not contain a JSON object")
    return form


def _show(as_json: bool, states: list[dict[str, Any]]) -> None:
    """Show the states. Weight that sources hold back has columns if some sources take part."""
    takes = any(state.get("sites") for state in states)
    more = ("held back", "silent", "posts") if takes else ()
    table = Table("monitor", "state", "alert", "explanation", *more)
    for state in states:
        event = MonitorEvent.of(state)
        near = (state.get("expected") or {}).get("near")
        held = _number(event.pending_at_most), Text(", ".join(event.silent)), _number(near)
        table.add_row(
            Text(event.monitor), Text(event.state), event.alert, Text(event.explanation or ""),
            *(held if takes else ()),
        )  # fmt: skip
    show(as_json, states, table)
