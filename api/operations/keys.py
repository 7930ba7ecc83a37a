"""``python -m api keys``: the keys, from the command line, for operators with database access.

It works on the database itself, so the first key can be made before any server runs. Running
servers see each change within two seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Annotated, TypeVar

import typer

from api.access.keys import EVERY_STREAM, KeyFieldError, KeyRow, Role, mint, now_us, rotate
from api.access.store import SqlKeyStore
from api.journal.log import StorageError
from api.settings import Settings, SettingsError

__all__ = ["keys"]

keys = typer.Typer(
    help="Create, list, replace and revoke keys in the database. The server need not run.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Config = Annotated[str | None, typer.Option(metavar="FILE", help="TOML file of settings.")]
Data = Annotated[str | None, typer.Option(metavar="PATH", help="SQLite file, or a database URL.")]
Prefix = Annotated[str, typer.Argument(help="The eight characters after ds_.")]
_Result = TypeVar("_Result")


@keys.command("mint")
def mint_key(
    role: Annotated[Role, typer.Option(help="The purpose of the key.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(help="Stream name or glob. May be repeated. Default: every stream."),
    ] = None,
    label: Annotated[str, typer.Option(help="Label for people.")] = "",
    expires_days: Annotated[
        float | None,
        typer.Option(min=0, max=36_500, help="Lifetime of the key. Default: no expiry."),
    ] = None,
    max_streams: Annotated[
        int | None,
        typer.Option(
            min=0, help="Stream limit: the key creates no stream while its scope has this many."
        ),
    ] = None,
    config: Config = None,
    data: Data = None,
) -> None:
    """Make a key and write it out, once: the stored row does not reveal it."""
    now = now_us()
    try:
        row, token = mint(
            role=role,
            scope=scope or [EVERY_STREAM],
            label=label,
            now_us=now,
            expires_us=None if expires_days is None else now + int(expires_days * 86_400e6),
            max_streams=max_streams,
        )
    except KeyFieldError as error:
        raise typer.BadParameter(str(error)) from None
    _with_store(config, data, lambda store: store.put(row))
    typer.echo(token)


@keys.command("list")
def list_keys(config: Config = None, data: Data = None) -> None:
    """Prefix, role, scope, created, expires and label of each key."""
    rows = _with_store(config, data, lambda store: store.all())
    for line in _lines(rows):
        typer.echo(line)


@keys.command("revoke")
def revoke_key(prefix: Prefix, config: Config = None, data: Data = None) -> None:
    """Revoke a key. Running servers reject it within two seconds."""
    if not _with_store(config, data, lambda store: store.delete(prefix)):
        raise typer.BadParameter(f"there is no key {prefix!r}")


@keys.command("rotate")
def rotate_key(
    prefix: Prefix,
    grace_s: Annotated[
        float,
        typer.Option(min=0, max=30 * 86_400, help="Time for which the old secret stays valid."),
    ] = 3600,
    config: Config = None,
    data: Data = None,
) -> None:
    """Give a key a new secret and write it out, once."""

    async def replace(store: SqlKeyStore) -> str | None:
        row = next((row for row in await store.all() if row.prefix == prefix), None)
        if row is None:
            return None
        changed, token = rotate(row, now_us(), int(grace_s * 1e6))
        if not await store.replace(row, changed):
            raise typer.BadParameter(f"key {prefix!r} was changed by another request just now")
        return token

    token = _with_store(config, data, replace)
    if token is None:
        raise typer.BadParameter(f"there is no key {prefix!r}")
    typer.echo(token)


def _with_store(
    config: str | None, data: str | None, act: Callable[[SqlKeyStore], Awaitable[_Result]]
) -> _Result:
    async def run() -> _Result:
        store = SqlKeyStore(Settings.from_environment(config=config, data=data).database_url)
        try:
            await store.create()
            return await act(store)
        finally:
            await store.close()

    try:
        return asyncio.run(run())
    except (SettingsError, StorageError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


def _lines(rows: Iterable[KeyRow]) -> list[str]:
    table = [("prefix", "role", "created", "expires", "scope", "label")]
    table += [
        (
            row.prefix,
            row.role.value,
            _date(row.created_us),
            _date(row.expires_us),
            " ".join(row.scope),
            row.label,
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    ]


def _date(time_us: int | None) -> str:
    return (
        "-" if time_us is None else f"{datetime.fromtimestamp(time_us / 1e6, UTC):%Y-%m-%d %H:%M}Z"
    )
