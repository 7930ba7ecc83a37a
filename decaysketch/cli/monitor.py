"""``decaysketch monitor``: alerts of an aggregator's streams, defined, listed and watched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from decaysketch.cli.output import AsJson, CommandError, number, reporting_errors, show
from decaysketch.cli.recipes import ApiKeyFile, TimeoutS
from decaysketch.client.admin import Admin, MonitorEvent

__all__ = ["monitor"]

monitor = typer.Typer(no_args_is_help=True, help="Monitors of a stream: alerts at a threshold.")
Url = Annotated[str, typer.Argument(help="The aggregator, such as http://localhost:8000.")]
Stream = Annotated[str, typer.Argument(help="Name of the stream.")]
Name = Annotated[str, typer.Argument(help="Name of the monitor.")]
_LONGEST_SPEC = 1 << 20


@contextmanager
def _admin(url: str, key_file: Path | None, timeout_s: float) -> Iterator[Admin]:
    key = None
    if key_file is not None:
        key = key_file.read_text(encoding="ascii", errors="replace")
    with Admin(url, key, timeout_s=timeout_s) as admin:
        yield admin


@monitor.command("list")
def list_(
    url: Url,
    stream: Stream,
    api_key_file: ApiKeyFile = None,
    timeout_s: TimeoutS = 10.0,
    as_json: AsJson = False,
) -> None:
    """List the monitors of a stream, with what is said of each."""
    with reporting_errors(), _admin(url, api_key_file, timeout_s) as admin:
        _show(as_json, admin.list_monitors(stream))


@monitor.command("put")
def put(
    url: Url,
    stream: Stream,
    name: Name,
    spec: Annotated[Path, typer.Argument(help="JSON file, as Threshold(...).to_dict() gives it.")],
    api_key_file: ApiKeyFile = None,
    timeout_s: TimeoutS = 10.0,
    as_json: AsJson = False,
) -> None:
    """Define a monitor, and say what it is expected to cost in posts."""
    with reporting_errors(), _admin(url, api_key_file, timeout_s) as admin:
        _show(as_json, [admin.put_monitor(stream, name, _spec(spec))])


@monitor.command("delete")
def delete(
    url: Url,
    stream: Stream,
    name: Name,
    api_key_file: ApiKeyFile = None,
    timeout_s: TimeoutS = 10.0,
) -> None:
    """Delete a monitor; an error where there is none."""
    with reporting_errors(), _admin(url, api_key_file, timeout_s) as admin:
        if not admin.delete_monitor(stream, name):
            raise CommandError(f"stream {stream!r} has no monitor {name!r}")


@monitor.command("watch")
def watch(
    url: Url,
    stream: Stream,
    api_key_file: ApiKeyFile = None,
    timeout_s: TimeoutS = 10.0,
    events: Annotated[int | None, typer.Option(min=1, help="End after so many.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print what is said of the monitors of a stream, a line for each change, until interrupted."""
    with reporting_errors(), _admin(url, api_key_file, timeout_s) as admin:
        for count, event in enumerate(admin.watch(stream), 1):
            typer.echo(json.dumps(event.fields) if as_json else _line(event))
            if count == events:
                return


def _line(event: MonitorEvent) -> str:
    silent = f"; silent: {', '.join(event.silent)}" if event.silent else ""
    where = f"{_between(event)} of {_number(event.threshold)}"
    return f"{event.monitor}: {_said(event)}, {where}{silent}"


def _said(event: MonitorEvent) -> str:
    return f"{event.state} ({event.reason})" if event.reason else event.state


def _between(event: MonitorEvent) -> str:
    return f"{_number(event.lower)} .. {_number(event.upper)}"


def _number(value: float | None) -> str:
    return "-" if value is None else number(value)


def _spec(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    if len(content) > _LONGEST_SPEC:
        raise CommandError(f"{path} has {len(content)} bytes; expected at most {_LONGEST_SPEC}")
    try:
        form = json.loads(content)
    except (ValueError, RecursionError):
        form = None
    if not isinstance(form, dict):
        raise CommandError(f"{path} does not hold a JSON object")
    return form


def _show(as_json: bool, states: list[dict[str, Any]]) -> None:
    table = Table("monitor", "state", "between", "threshold", "held back", "silent", "posts")
    for state in states:
        event = MonitorEvent.of(state)
        near = (state.get("expected") or {}).get("near")
        ends = (event.threshold, event.pending_at_most)
        table.add_row(
            Text(event.monitor), Text(_said(event)), Text(_between(event)), *map(_number, ends),
            Text(", ".join(event.silent)), _number(near),
        )  # fmt: skip
    show(as_json, states, table)
