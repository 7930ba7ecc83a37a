"""``python -m api``: serve the aggregator, and maintain its database.

Without a command it serves: ``python -m api --port 8080`` is ``python -m api serve --port 8080``.
"""

from __future__ import annotations

import gc
import logging
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
import uvicorn
from fastapi import FastAPI

from api import logs
from api.app import create_app
from api.http.head_timeout import TimedProtocol
from api.operations import backup as backups
from api.operations import offline
from api.operations.keys import keys
from api.operations.orphan import end_with_parent
from api.operations.starting import AddressError, check_address
from api.queries.document import questions_table
from api.resources import memory_table
from api.service.metrics import MULTIPROCESS_VARIABLE
from api.settings import ENV_PREFIX, Settings, SettingsError, settings_table

__all__ = ["application", "commands", "main"]

_log = logging.getLogger("api")

_NOT_STARTED = 3  # the status with which uvicorn ends where the application does not start
_LEAVING_S = 30.0  # to close the database and the rest, after two times the drain

commands = typer.Typer(
    help="The decaysketch aggregator. Every option can also be set by the environment, as "
    f"{ENV_PREFIX}<OPTION>, or in the file that --config names.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

commands.add_typer(keys, name="keys")

Config = Annotated[str | None, typer.Option(metavar="FILE", help="TOML file of settings.")]
Data = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="SQLite file, created if absent, or a database URL."),
]
Archive = Annotated[Path, typer.Argument(metavar="PATH", help="The backup, one file.")]


@commands.command()
def serve(
    config: Config = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[str | None, typer.Option(metavar="PORT", help="TCP port.")] = None,
    data: Data = None,
    workers: Annotated[str | None, typer.Option(metavar="N", help="Processes.")] = None,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Maximum memory of a worker, such as '3 GiB'."),
    ] = None,
    auth: Annotated[
        str | None, typer.Option(metavar="keys|off|auto", help="Whether a request needs a key.")
    ] = None,
    upstream: Annotated[
        str | None,
        typer.Option(metavar="URL", help="URL of another aggregator: this one becomes its relay."),
    ] = None,
    upstream_source: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of this relay at the other aggregator.")
    ] = None,
    log_format: Annotated[
        str | None, typer.Option(metavar="json|text|auto", help="Format of log lines.")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="debug|info|warning|error", help="Least severe line.")
    ] = None,
) -> None:
    """Serve until a signal stops the process."""
    settings = _settings(
        config=config,
        host=host,
        port=port,
        data=data,
        workers=workers,
        memory=memory,
        auth=auth,
        upstream=upstream,
        upstream_source=upstream_source,
        log_format=log_format,
        log_level=log_level,
    )
    logs.configure(settings)
    try:
        check_address(settings)
    except AddressError as error:
        _log.critical("%s", error)
        raise typer.Exit(_NOT_STARTED) from None
    _log.info("starting, over %s", settings.place)
    options: dict[str, Any] = {
        "host": settings.host,
        "port": settings.port,
        "access_log": False,
        "log_config": None,
        "server_header": False,
        "http": TimedProtocol,
        "timeout_graceful_shutdown": math.ceil(settings.drain_s),
    }
    if settings.workers == 1:
        uvicorn.run(_settled(create_app(settings)), **options)
        return
    with _shared_by_workers(settings):
        uvicorn.run("api.__main__:application", factory=True, workers=settings.workers, **options)


def application() -> FastAPI:
    """Return the application for each worker, from the environment."""
    settings = Settings.from_environment()
    logs.configure(settings)
    end_with_parent(within_s=2 * settings.drain_s + _LEAVING_S)
    return _settled(create_app(settings))


def _settled(app: FastAPI) -> FastAPI:
    """Exempt all present objects from garbage collection. Scanning them takes 200 ms at a time,
    and nothing else runs meanwhile.
    """
    gc.collect()
    gc.freeze()
    return app


@contextmanager
def _shared_by_workers(settings: Settings) -> Iterator[None]:
    """Start processes within this context: they have the settings and one place for their
    counters.
    """
    with TemporaryDirectory(prefix="decaysketch-metrics-") as directory:
        variables = settings.to_environment() | {MULTIPROCESS_VARIABLE: directory}
        earlier = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in earlier.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


@commands.command()
def backup(path: Archive, config: Config = None, data: Data = None) -> None:
    """Write everything as of one moment to one file. The aggregator may continue to serve."""
    settings = _settings(config=config, data=data)
    with _reported():
        written = backups.backup(settings.database_url, path)
    for table in written:
        typer.echo(f"{table.name}: {table.rows} rows")
    typer.echo(f"wrote {path}, {path.stat().st_size} bytes")


@commands.command()
def restore(path: Archive, config: Config = None, data: Data = None) -> None:
    """Fill an empty database from a backup. No aggregator may use that database meanwhile."""
    settings = _settings(config=config, data=data)
    with _reported():
        restored = backups.restore(path, settings.database_url)
    for table in restored:
        typer.echo(f"{table.name}: {table.rows} rows")
    typer.echo(f"restored {settings.place} from {path}")


@commands.command()
def check(config: Config = None, data: Data = None) -> None:
    """Read the complete database and verify every sketch in it. Exit with status 1 if any is
    damaged.
    """
    settings = _settings(config=config, data=data)
    with _reported():
        findings = backups.check(settings.database_url)
    for stream in findings.streams:
        typer.echo(
            f"{stream.name}: {stream.snapshots} snapshots, {stream.posts} posts, "
            f"{stream.bytes} bytes"
        )
    for fault in findings.faults:
        typer.echo(f"damaged: {fault}", err=True)
    if findings.faults:
        raise typer.Exit(1)


@commands.command()
def revoke(
    stream: Annotated[str, typer.Argument(help="Name of the stream.")],
    source: Annotated[str, typer.Argument(help="Name of the source.")],
    config: Config = None,
    data: Data = None,
) -> None:
    """Drop all posts from a source to a stream, and reject the source from now on. Works on the
    database without reading a sketch. Running servers follow at once.
    """
    settings = _settings(config=config, data=data)
    with _reported():
        offline.revoke(settings.database_url, stream, source)
    typer.echo(f"revoked source {source!r} of stream {stream!r} in {settings.place}")


@commands.command()
def delete(
    stream: Annotated[str, typer.Argument(help="Name of the stream.")],
    config: Config = None,
    data: Data = None,
) -> None:
    """Delete a stream and all its posts. Works on the database without reading a sketch. Running
    servers follow at once.
    """
    settings = _settings(config=config, data=data)
    with _reported():
        offline.delete(settings.database_url, stream)
    typer.echo(f"deleted stream {stream!r} from {settings.place}")


@commands.command()
def settings() -> None:
    """Write every setting, with default and domain, as a Markdown table."""
    typer.echo(settings_table(), nl=False)


@commands.command()
def questions() -> None:
    """Write every query that streams answer as a Markdown table."""
    typer.echo(questions_table(), nl=False)


@commands.command("memory")
def memory_bound(config: Config = None) -> None:
    """Write a worker's maximum memory with these settings, as a Markdown table."""
    typer.echo(memory_table(_settings(config=config)), nl=False)


def _settings(**options: Any) -> Settings:
    try:
        return Settings.from_environment(**options)
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from None


@contextmanager
def _reported() -> Iterator[None]:
    """Report a rejection as one line and status 1."""
    try:
        yield
    except (backups.BackupError, offline.OfflineError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command, ``serve`` if none is named. Raises SystemExit with its status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or (given[0].startswith("-") and given[0] != "--help"):
        given.insert(0, "serve")
    commands(args=given, prog_name="python -m api")


if __name__ == "__main__":
    main()
