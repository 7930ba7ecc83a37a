"""``decaysketch bridge``: messages of a broker or of files to an aggregator (extra ``bridge``)."""

from __future__ import annotations

import importlib.util
import logging
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from decaysketch.cli.output import CommandError, number, report, reporting_errors, show

if TYPE_CHECKING:
    from decaysketch.bridge.config import Config
    from decaysketch.bridge.translating import Translated

__all__ = ["bridge"]

bridge = typer.Typer(no_args_is_help=True, help="Messages of a broker to an aggregator.")

ConfigFile = Annotated[Path, typer.Option("--config", help="The file of the bridge, TOML.")]
_TIMEOUT_S = 30.0


def _config(path: Path) -> Config:
    missing = [each for each in ("paho", "pydantic", "prometheus_client")
               if importlib.util.find_spec(each) is None]  # fmt: skip
    if missing:
        raise CommandError(
            f"the bridge needs {', '.join(missing)}; expected the extra: pip install '.[bridge]'"
        )
    from decaysketch.bridge.config import read

    return read(path)


@bridge.command("mqtt")
def mqtt(
    config_file: ConfigFile,
    look: Annotated[
        int,
        typer.Option("--print", min=0, help="Print the rows of so many messages; send nothing."),
    ] = 0,
    check: Annotated[
        bool, typer.Option("--check", help="See whether all is there that is needed; send nothing.")
    ] = False,
) -> None:
    """Bring the messages of a broker to the streams that the maps of a file name."""
    with reporting_errors():
        config = _config(config_file)
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        logging.getLogger("httpx2").setLevel(logging.WARNING)
        if check:
            _check(config)
        elif look:
            _look(config, look)
        else:
            _run(config)


def _run(config: Config) -> None:
    from decaysketch.bridge.broker import Connection
    from decaysketch.bridge.dead import DeadLetters
    from decaysketch.bridge.metrics import Metrics
    from decaysketch.bridge.running import Bridge, Taker, open_sensors

    metrics = Metrics()
    stop_serving = None if config.metrics is None else metrics.serve(config.metrics)
    sensors = open_sensors(config, timeout_s=_TIMEOUT_S)
    try:
        letters = DeadLetters(config.spool / "dead", config.max_spool_bytes)
        connection = Connection(config, metrics)
        running = Bridge(connection, Taker(config, sensors, metrics, letters), metrics)
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, lambda *_: running.stop())
        connection.open(_TIMEOUT_S)
        try:
            running.run()
        finally:
            connection.close()
    finally:
        for sensor in sensors.values():
            sensor.close()
        if stop_serving is not None:
            stop_serving()


def _check(config: Config) -> None:
    from decaysketch.bridge.checking import checks

    wrong = 0
    for what, fault in checks(config):
        wrong += fault is not None
        report.print(Text(f"{what}: {fault or 'well'}"))
    if wrong:
        raise CommandError(f"{wrong} of the above would keep the bridge from its work")


def _look(config: Config, most: int) -> None:
    from decaysketch.bridge.broker import Connection
    from decaysketch.bridge.metrics import Metrics
    from decaysketch.bridge.translating import Translator

    connection = Connection(config, Metrics(), passing=True)
    translator = Translator(config.map, config.mqtt.max_message_bytes)
    connection.open(_TIMEOUT_S)
    try:
        while most > 0:
            arrived = connection.gather(lambda: False)[:most]
            most -= len(arrived)
            if arrived:
                _print(translator.translate(arrived), [each.message.topic for each in arrived])
    except KeyboardInterrupt:
        pass
    finally:
        connection.close()


def _print(found: Translated, topics: list[str]) -> None:
    table = Table("stream", "value", "time", "weight", "id")
    for stream, readings in found.readings.items():
        for each in readings:
            table.add_row(
                stream,
                "missing" if each.value is None else f"{each.value:g}",
                _time(each.time_ns),
                number(each.weight),
                Text(" ".join(map(str, each.key))),
            )
    show(False, None, table)
    for place, reasons in found.dead.items():
        report.print(Text(f"dead: {topics[place]}: {'; '.join(reasons)}"))
    for word, count in found.skipped.items():
        report.print(Text(f"skipped ({word}): {count}"))


def _time(time_ns: int) -> str:
    try:
        return datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{time_ns} ns"


@bridge.command("replay")
def replay(
    path: Annotated[Path, typer.Argument(help="Dead letters, or NDJSON; or a folder of these.")],
    config_file: ConfigFile,
    topic: Annotated[
        str, typer.Option(help="Under which messages came, where a line does not say.")
    ] = "",
) -> None:
    """Feed recorded messages through the maps of a file, and wait until the aggregator has them.
    Any that were counted before change nothing."""
    with reporting_errors():
        config = _config(config_file)
        from decaysketch.bridge.metrics import Metrics
        from decaysketch.bridge.replay import batches, files_of
        from decaysketch.bridge.running import Taker, open_sensors

        files = files_of(path)
        if not files:
            raise CommandError(f"{path} holds no *.ndjson")
        sensors = open_sensors(config, part="replay", timeout_s=_TIMEOUT_S)
        messages = dead = rows = 0
        try:
            taker = Taker(config, sensors, Metrics(), None)
            for file in files:
                for arrived in batches(file, topic, config.mqtt.batch):
                    found = taker.take(arrived)
                    messages += len(arrived)
                    dead += len(found.dead)
                    rows += sum(map(len, found.readings.values()))
                    for place, reasons in found.dead.items():
                        said = f"dead: {arrived[place].message.topic}: {'; '.join(reasons)}"
                        report.print(Text(said))
            undone = [name for name, sensor in sensors.items() if not sensor.flush().done]
        finally:
            for sensor in sensors.values():
                sensor.close(0.0)
        report.print(Text(f"{messages} messages, {rows} readings, {dead} dead"))
        if undone:
            raise CommandError(
                f"not all is delivered of {', '.join(undone)}; it waits in the spool"
            )
