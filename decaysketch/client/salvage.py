"""Read a spool's content, including rejected and damaged data with intact sketches.

Each sketch has its own checksum. So a sketch is intact even if its record header in the log is
damaged. If an earlier release moved the end of a log aside, only the damaged record is lost.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from decaysketch.client.delta import HEAD_BYTES, Interval, scan
from decaysketch.client.errors import ClientError
from decaysketch.client.metadata import parse_card
from decaysketch.client.spool import CARD, CARD_COPY, Spool, parse_name
from decaysketch.client.store import recipe_in
from decaysketch.core.codec.reading import MAGIC
from decaysketch.errors import DecaySketchError
from decaysketch.families import Recipe, Sketch, decode, recipe_from_dict

__all__ = ["PLACES", "Found", "Piece", "Recovered", "look", "read_card", "recover"]

_log = logging.getLogger("decaysketch.client")
PLACES = ("deltas", "open.log", "rejected", "damaged")


class Found(NamedTuple):
    """An intact sketch: its bytes and, for numbered elements, their numbers."""

    blob: bytes
    interval: Interval | None
    rows: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A file in a spool that contains observations.

    Attributes:
        place: one of "deltas", "open.log", "rejected", "damaged".
        name: file name.
        size: in bytes.
        reason: why it was moved aside. None if it was not, or if that is unknown.
        sketches: the readable sketches.
        unreadable: bytes without a sketch.
    """

    place: str
    name: str
    size: int
    reason: str | None
    sketches: tuple[Found, ...]
    unreadable: int


class Recovered(NamedTuple):
    """The outcome for one file that was moved aside."""

    piece: Piece
    deltas: int
    left: str | None


def read_card(folder: Path) -> dict[str, Any] | None:
    """Return a spool's stream and source, or None if both metadata files are unreadable."""
    for name in (CARD, CARD_COPY):
        try:
            return parse_card((folder / name).read_bytes())
        except (FileNotFoundError, ValueError, RecursionError):
            continue
    return None


def look(folder: Path, id_key: bytes | None = None) -> list[Piece]:
    """Return everything that a spool contains. Change nothing. A client may use the spool
    meanwhile.

    Args:
        folder: the spool.
        id_key: the stream's secret id key, if it has one.

    Raises:
        ClientError: the folder is not a spool.
        ParameterError: the secret is missing or unnecessary.
    """
    card = _checked_card(folder)
    read: Callable[[bytes], Sketch]
    if card is None:
        read = lambda blob: decode(blob, id_key=id_key)  # noqa: E731
    else:
        read = recipe_from_dict(card["recipe"], id_key=id_key).decode
    return list(_pieces(folder, read))


def _checked_card(folder: Path) -> dict[str, Any] | None:
    card = read_card(folder)
    if card is None and not (folder / "deltas").is_dir():
        raise ClientError(f"{folder} is not a spool; expected the folder of a sensor")
    return card


def _pieces(folder: Path, read: Callable[[bytes], Sketch]) -> Iterator[Piece]:
    for place in PLACES:
        path = folder / place
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in files:
            if file.suffix in (".json", ".tmp") or not file.is_file():
                continue
            try:
                content = file.read_bytes()
            except FileNotFoundError:  # another process has sent it
                continue
            if content:
                yield _piece(file, place, content, read)


def _piece(file: Path, place: str, content: bytes, read: Callable[[bytes], Sketch]) -> Piece:
    named = parse_name(file)
    if named is not None or file.suffix == ".sketch":
        sound = _try(content, None if named is None else named.interval, read)
        found = [] if sound is None else [sound]
        unreadable = 0 if found else len(content)
    else:
        found, unreadable = _in_log(content, read)
    return Piece(place, file.name, len(content), _reason(file), tuple(found), unreadable)


def _try(blob: bytes, interval: Interval | None, read: Callable[[bytes], Sketch]) -> Found | None:
    try:
        return Found(blob, interval, len(read(blob)))
    except DecaySketchError:
        return None


def _in_log(content: bytes, read: Callable[[bytes], Sketch]) -> tuple[list[Found], int]:
    records, gaps = scan(content)
    tried = [_try(record.blob, record.interval, read) for record in records]
    unreadable = sum(len(r.blob) for r, each in zip(records, tried, strict=True) if each is None)
    for gap in gaps:
        piece = content[gap.start : gap.end]
        inside = [_try(blob, None, read) for blob in _blobs_in(piece)]
        tried += inside
        if not any(inside):
            unreadable += len(piece)
    return [each for each in tried if each is not None], unreadable


def _blobs_in(piece: bytes) -> Iterator[bytes]:
    """Return candidates for sketches with damaged record headers."""
    start = piece.find(MAGIC)
    while start >= 0:
        following = piece.find(MAGIC, start + 1)
        yield piece[start:] if following < 0 else piece[start : following - HEAD_BYTES]
        start = following


def _reason(file: Path) -> str | None:
    try:
        note = json.loads(file.with_name(f"{file.name}.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(note, dict):
        return None
    said = note.get("reason", note.get("detail"))
    return said if isinstance(said, str) else None


def recover(
    folder: Path, *, id_key: bytes | None = None, rejected: bool = False
) -> list[Recovered]:
    """Turn rejected and damaged data that are readable into deltas. The next client sends them.

    A completely recovered file is deleted. A file with other content stays. A repeated sketch
    changes nothing, and the server accepts each number once.

    Args:
        folder: the spool. No client may have it open.
        id_key: the stream's secret id key, if it has one.
        rejected: whether to retry rejected data too.

    Raises:
        SpoolInUseError: a client has it open.
        ClientError: the folder is not a spool, or the sketch configuration is unknown.
    """
    card = _checked_card(folder)
    spool = Spool(folder, lambda said: _log.warning("%s: %s", folder, said))
    try:
        recipe: Recipe | None = (
            recipe_in(spool, id_key)
            if card is None
            else recipe_from_dict(card["recipe"], id_key=id_key)
        )
        if recipe is None:
            raise ClientError(
                f"{folder} has no readable metadata, nor a delta with the stream's parameters; "
                "start the sensor once, so that it requests them from the server"
            )
        numbered = card is not None and card["numbered"]
        places = ("rejected", "damaged") if rejected else ("damaged",)
        pieces = [piece for piece in _pieces(folder, recipe.decode) if piece.place in places]
        return [_recover(spool, piece, numbered) for piece in pieces]
    finally:
        spool.close()


def _recover(spool: Spool, piece: Piece, numbered: bool) -> Recovered:
    added, left = 0, None
    taken = [delta.interval for delta in spool.deltas if delta.interval is not None]
    for found in piece.sketches:
        if numbered and found.interval is None:
            left = "the numbers of its elements are unknown"
        elif found.interval is not None and (
            other := next((each for each in taken if _overlap(each, found.interval)), None)
        ):
            left = (
                f"its numbers from {found.interval.first} on are in a delta from {other.first} on"
            )
        else:
            spool.add(found.blob, found.interval)
            added += 1
            if found.interval is not None:
                taken.append(found.interval)
    if left is None and piece.unreadable:
        left = f"{piece.unreadable} bytes cannot be read"
    if left is None and added:
        spool.discard_set_aside(piece.place, piece.name)
    return Recovered(piece, added, left)


def _overlap(one: Interval, other: Interval) -> bool:
    return one.first < other.next and other.first < one.next
