"""``decaysketch bridge``: messages from a broker or from files to an aggregator (extra
``bridge``).
"""

from __future__ import annotations

import importlib.util
import logging
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from decaysketch.cli.output import CommandError, number, report, reporting_errors, show

if TYPE_CHECKING:
    from decaysketch.ingest.bridge.config import Config
    from decaysketch.ingest.bridge.metrics import Metrics
    from decaysketch.ingest.bridge.running import Loop, Taker
    from decaysketch.ingest.bridge.tail import Tail
    from decaysketch.ingest.bridge.translating import Translated

__all__ = ["bridge"]

bridge = typer.Typer(no_args_is_help=True, help="Forward messages from a broker to an aggregator.")

ConfigFile = Annotated[Path, typer.Option("--config", help="The bridge's TOML file.")]
Check = Annotated[bool, typer.Option("--check", help="Check all requirements. Send nothing.")]
_TIMEOUT_S = 30.0
_SILENT_S = 10.0  # without a message before the bridge reports silence


def _config(path: Path) -> Config:
    missing = [each for each in ("paho", "pydantic", "prometheus_client")
               if importlib.util.find_spec(each) is None]  # fmt: skip
    if missing:
        raise CommandError(
            f"the bridge needs {', '.join(missing)}; expected the extra: pip install '.[bridge]'"
        )
    from decaysketch.ingest.bridge.config import read

    return read(path)


@bridge.command("mqtt")
def mqtt(
    config_file: ConfigFile,
    look: Annotated[
        int,
        typer.Option("--print", min=0, help="Print the rows of this many messages. Send nothing."),
    ] = 0,
    check: Check = False,
    ack: Annotated[
        str | None,
        typer.Option(
            help="When to acknowledge a message: once it is on disk here (disk), or once the "
            "server has acknowledged it (server). With server, no message is lost if this "
            "machine is lost. Default: the value in the file, else disk."
        ),
    ] = None,
) -> None:
    """Forward messages from a broker to the streams that the mappings in a file name."""
    with reporting_errors():
        config = _prepared(config_file)
        broker = config.broker
        if ack not in (None, "disk", "server"):
            raise CommandError(f"--ack is {ack!r}; expected disk or server")
        if check:
            _check(config)
            return
        from decaysketch.ingest.bridge.broker import Connection

        if look:
            _look(config, look)
            return
        from decaysketch.ingest.bridge.running import Bridge

        how: Any = ack or broker.ack
        with _taking(config) as (taker, metrics):
            connection = Connection(config, metrics)
            running = Bridge(connection, taker, metrics, how)
            _end_by_signals(running)
            connection.open(_TIMEOUT_S)
            try:
                running.run()
            finally:
                connection.close()


@bridge.command("tail")
def tail(
    path: Annotated[Path, typer.Argument(help="The file, with one message per line.")],
    config_file: ConfigFile,
    topic: Annotated[str, typer.Option(help="The topic of its messages.")] = "",
    once: Annotated[
        bool, typer.Option("--once", help="Stop at the end of the file, after delivery.")
    ] = False,
    look: Annotated[
        int,
        typer.Option("--print", min=0, help="Print the rows of this many lines. Send nothing."),
    ] = 0,
    check: Check = False,
) -> None:
    """Follow a file that grows, through its rotations, and forward its lines to the streams that
    the mappings in a file name. The spool stores the position.
    """
    with reporting_errors():
        config = _prepared(config_file)
        if check:
            _check(config)
            return
        from decaysketch.ingest.bridge.tail import Tail, place_of

        if look:
            nowhere = config.spool / "none"
            _look_into(Tail(path, nowhere, topic, config.max_message_bytes), config, look)
            return
        from decaysketch.ingest.bridge.running import FileLoop

        with _taking(config, part="tail", deliver=once) as (taker, metrics):
            place = place_of(config.spool, path)
            tail = Tail(path, place, topic, config.max_message_bytes)
            running = FileLoop(tail, taker, metrics, batch=config.batch, once=once)
            _end_by_signals(running)
            try:
                running.run()
            finally:
                tail.close()


def _prepared(path: Path) -> Config:
    config = _config(path)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    return config


@contextmanager
def _taking(
    config: Config, *, part: str = "", deliver: bool = False
) -> Iterator[tuple[Taker, Metrics]]:
    """Yield the object that accepts messages, until the end.

    Args:
        config: of the bridge.
        part: of the spool, for programs that may run along with a bridge.
        deliver: report an error if the aggregator does not have all messages at the end.
    """
    from decaysketch.ingest.bridge.dead_letters import DeadLetters
    from decaysketch.ingest.bridge.metrics import Metrics
    from decaysketch.ingest.bridge.opening import open_streams
    from decaysketch.ingest.bridge.running import Taker

    metrics = Metrics()
    stop_serving = None if config.metrics is None else metrics.serve(config.metrics)
    try:
        streams = open_streams(config, part=part, timeout_s=_TIMEOUT_S)
        try:
            letters = DeadLetters(config.spool / "dead", config.max_spool_bytes)
            yield Taker(config, streams.sensors, metrics, letters, streams.views), metrics
            undone = streams.undone() if deliver else []
        finally:
            streams.close(_TIMEOUT_S)
    finally:
        if stop_serving is not None:
            stop_serving()
    _refuse_undone(undone)


def _refuse_undone(streams: list[str]) -> None:
    if streams:
        raise CommandError(
            f"not everything is delivered of {', '.join(streams)}; the rest waits in the spool"
        )


def _end_by_signals(running: Loop) -> None:
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: running.stop())


def _check(config: Config) -> None:
    from decaysketch.ingest.bridge.checking import checks

    wrong = 0
    for what, fault in checks(config):
        wrong += fault is not None
        report.print(Text(f"{what}: {fault or 'well'}"))
    if wrong:
        raise CommandError(f"{wrong} of the above must be fixed before the bridge can run")


def _look(config: Config, most: int) -> None:
    from decaysketch.ingest.bridge.broker import Connection
    from decaysketch.ingest.bridge.metrics import Metrics
    from decaysketch.ingest.bridge.translating import Translator

    connection = Connection(config, Metrics(), passing=True)
    translator = Translator(config.map, config.max_message_bytes)
    connection.open(_TIMEOUT_S)
    silent_until: float | None = time.monotonic() + _SILENT_S
    try:
        while most > 0:
            arrived = connection.gather(lambda: False)[:most]
            most -= len(arrived)
            if arrived:
                silent_until = None
            elif silent_until is not None and time.monotonic() >= silent_until:
                silent_until = None  # report it once
                topics = ", ".join(config.broker.topics)
                report.print(Text(f"no message yet on {topics}; check the topics in the file"))
            if arrived:
                _print(translator.translate(arrived), [each.message.topic for each in arrived])
    except KeyboardInterrupt:
        pass
    finally:
        connection.close()


def _look_into(tail: Tail, config: Config, most: int) -> None:
    from decaysketch.ingest.bridge.translating import Translator

    arrived = tail.read(most)
    tail.close()
    found = Translator(config.map, config.max_message_bytes).translate(arrived)
    _print(found, [f"line {place + 1}" for place in range(len(arrived))])


def _print(found: Translated, topics: list[str]) -> None:
    whole = [Column(name, no_wrap=True) for name in ("value", "time", "weight")]
    table = Table("stream", *whole, Column("id", overflow="fold"))
    for stream, readings in found.readings.items():
        for each in readings:
            table.add_row(
                stream,
                _value(each.value),
                _time(each.time_ns),
                number(each.weight),
                Text(" ".join(map(str, each.key))),
            )
    show(False, None, table)
    for place, reasons in found.dead.items():
        report.print(Text(f"dead: {topics[place]}: {'; '.join(reasons)}"))
    for word, count in found.skipped.items():
        report.print(Text(f"skipped ({word}): {count}"))
    for path, numbers in found.absent.items():
        report.print(Text(f"no value at {path}; numbers in such a message: {_list(numbers)}"))


def _value(given: Any) -> str | Text:
    """Return a reading's value, its label or its columns, as text."""
    from decaysketch.ingest.mapping import shown
    from decaysketch.ingest.record_columns import ColumnValues

    if isinstance(given, ColumnValues):
        return Text(", ".join(f"{name}={shown(each)}" for name, each in given.values.items()))
    if isinstance(given, str):
        return Text(given)
    return "missing" if given is None else f"{given:g}"


def _list(numbers: list[str]) -> str:
    return ", ".join(numbers) or "none"


def _time(time_ns: int) -> str:
    try:
        return datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{time_ns} ns"


@bridge.command("replay")
def replay(
    path: Annotated[Path, typer.Argument(help="Dead letters, or NDJSON; or a folder of these.")],
    config_file: ConfigFile,
    topic: Annotated[str, typer.Option(help="The topic of lines without one.")] = "",
) -> None:
    """Feed recorded messages through the mappings in a file, and wait until the aggregator has
    them. Messages that already counted change nothing.
    """
    with reporting_errors():
        config = _config(config_file)
        from decaysketch.ingest.bridge.metrics import Metrics
        from decaysketch.ingest.bridge.opening import open_streams
        from decaysketch.ingest.bridge.replay import batches, files_of
        from decaysketch.ingest.bridge.running import Taker

        files = files_of(path)
        if not files:
            raise CommandError(f"{path} contains no *.ndjson")
        streams = open_streams(config, part="replay", timeout_s=_TIMEOUT_S)
        messages = dead = rows = 0
        try:
            taker = Taker(config, streams.sensors, Metrics(), None, streams.views)
            for file in files:
                for arrived in batches(file, topic, config.batch):
                    found = taker.take(arrived)
                    messages += len(arrived)
                    dead += len(found.dead)
                    rows += sum(map(len, found.readings.values()))
                    for place, reasons in found.dead.items():
                        said = f"dead: {arrived[place].message.topic}: {'; '.join(reasons)}"
                        report.print(Text(said))
            undone = streams.undone()
        finally:
            streams.close(0.0)
        report.print(Text(f"{messages} messages, {rows} readings, {dead} dead"))
        _refuse_undone(undone)
