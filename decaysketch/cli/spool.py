"""``decaysketch spool``: the content of a sensor's spool, including data that was set aside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from decaysketch.cli.output import (
    AsJson,
    CommandError,
    human_bytes,
    number,
    report,
    reporting_errors,
    show,
    write_whole,
)
from decaysketch.cli.recipes import IdKeyFile, read_id_key
from decaysketch.client.salvage import Piece, look, read_card, recover

__all__ = ["spool"]

spool = typer.Typer(
    no_args_is_help=True, help="Show a sensor's spool, and recover data that was set aside."
)
Folder = Annotated[Path, typer.Argument(help="The folder of a spool.")]


@spool.command("list")
def list_(folder: Folder, id_key_file: IdKeyFile = None, as_json: AsJson = False) -> None:
    """Show the content of a spool: waiting data, data set aside with the reason, and its sound
    part.
    """
    with reporting_errors():
        pieces = look(folder, read_id_key(id_key_file))
        table = Table("where", "name", "bytes", "sketches", "rows", "unreadable", "why")
        for piece in pieces:
            table.add_row(
                piece.place,
                Text(piece.name),
                human_bytes(piece.size),
                number(len(piece.sketches)),
                number(_rows(piece)),
                human_bytes(piece.unreadable) if piece.unreadable else "",
                Text(piece.reason or ""),
            )
        show(
            as_json, {"card": read_card(folder), "pieces": [_facts(each) for each in pieces]}, table
        )


@spool.command("recover")
def recover_(
    folder: Folder,
    rejected: Annotated[
        bool,
        typer.Option("--rejected", help="Include data that the server rejected, to send it again."),
    ] = False,
    id_key_file: IdKeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Make deltas from readable data that was set aside. The next sensor on the spool sends them.

    No sensor may have the spool open. Files with any unreadable content stay in place.
    """
    with reporting_errors():
        done = recover(folder, id_key=read_id_key(id_key_file), rejected=rejected)
        table = Table("where", "name", "deltas", "left there")
        for each in done:
            table.add_row(
                each.piece.place, Text(each.piece.name), number(each.deltas), each.left or ""
            )
        facts = [{**_facts(each.piece), "deltas": each.deltas, "left": each.left} for each in done]
        show(as_json, facts, table)


@spool.command("export")
def export(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="Folder to write the sketches to.")],
    id_key_file: IdKeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Write every readable sketch in a spool to a file, for merge, query and inspect."""
    with reporting_errors():
        pieces = look(folder, read_id_key(id_key_file))
        if out.exists() and any(out.iterdir()):
            raise CommandError(f"{out} is not empty; expected a new folder")
        out.mkdir(parents=True, exist_ok=True)
        written: list[dict[str, Any]] = []
        table = Table("file", "from", "rows")
        for piece in pieces:
            for place, found in enumerate(piece.sketches):
                path = out / f"{piece.place}-{piece.name.removesuffix('.sketch')}-{place}.sketch"
                write_whole(path, found.blob)
                name = f"{piece.place}/{piece.name}"
                written.append({"file": str(path), "from": name, "rows": found.rows})
                table.add_row(Text(str(path)), Text(name), number(found.rows))
        if lost := sum(piece.unreadable for piece in pieces):
            report.print(f"{lost:,} bytes of the spool cannot be read", soft_wrap=True)
        show(as_json, written, table)


def _rows(piece: Piece) -> int:
    return sum(found.rows for found in piece.sketches)


def _facts(piece: Piece) -> dict[str, Any]:
    return {
        "place": piece.place, "name": piece.name, "bytes": piece.size, "reason": piece.reason,
        "sketches": [
            {"rows": found.rows, "bytes": len(found.blob), "interval": found.interval}
            for found in piece.sketches
        ],
        "unreadable_bytes": piece.unreadable,
    }  # fmt: skip
