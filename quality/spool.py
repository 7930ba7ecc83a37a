"""``python -m quality.spool``: one flipped bit in a client's spool, and in a SQLite database.

Both hold five records: two deltas and three log records, as a killed client leaves them. Each round
flips one random bit in one file, opens the spool again and counts the records that are lost. The
database has write-ahead logging and ``synchronous=FULL``, a checksum per record, and is copied once
before a checkpoint, once after the second record's, and once after a checkpoint of all records.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sqlite3
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import decaysketch as ds
from decaysketch.client.errors import ClientError
from decaysketch.client.spool import LogRecord, Spool

__all__ = ["main", "spool_losses", "sqlite_losses"]

_RECORDS, _DELTAS = 5, 2
_UNREADABLE = (sqlite3.Error, UnicodeDecodeError)  # a damaged message is no text


def main() -> None:
    """Print one row for the spool and one for each state of the database."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=2000)
    rounds = parser.parse_args().rounds
    table = Table("storage", "no record lost", "one", "more than one")
    rows = [("spool", spool_losses(rounds, seed=1))]
    for name, checkpoints in (("never", ()), ("second record", (1,)), ("last record", (4,))):
        rows.append((f"SQLite, checkpoint: {name}", sqlite_losses(rounds, checkpoints, seed=1)))
    for name, lost in rows:
        more = rounds - lost[0] - lost[1]
        table.add_row(name, *(f"{100 * each / rounds:.1f} %" for each in (lost[0], lost[1], more)))
    Console().print(table)


def _blobs() -> list[bytes]:
    """Return one sketch per record, each with ids of its own."""
    params = ds.SketchParams(capacity=100, seed=1)
    found = []
    for number in range(_RECORDS):
        sketch = ds.DecaySketch(params)
        ids = np.arange(10 * number, 10 * number + 10)
        sketch.update(None, np.ones(10, np.int64), ids, ids)
        found.append(sketch.to_bytes())
    return found


def _damaged(folder: Path, copy: Path, draw: random.Random) -> None:
    """Copy a folder and flip one bit of its bytes, each with the same probability."""
    shutil.copytree(folder, copy)
    files = [each for each in sorted(copy.rglob("*")) if each.is_file() and each.stat().st_size]
    (file,) = draw.choices(files, [each.stat().st_size for each in files])
    content = bytearray(file.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    file.write_bytes(content)


def _rounds(folder: Path, rounds: int, seed: int) -> Iterator[Path]:
    draw = random.Random(seed)
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as directory:
            copy = Path(directory) / "copy"
            _damaged(folder, copy, draw)
            yield copy


def spool_losses(rounds: int, seed: int) -> Counter[int]:
    """Return how many rounds lost each number of records of a spool."""
    lost: Counter[int] = Counter()
    blobs = _blobs()
    with tempfile.TemporaryDirectory() as directory:
        spool = Spool(folder := Path(directory) / "spool")
        for blob in blobs[:_DELTAS]:
            spool.add(blob)
        for blob in blobs[_DELTAS:]:
            spool.append(LogRecord(blob, None))
        spool.close()
        for copy in _rounds(folder, rounds, seed):
            lost[_RECORDS - len(set(blobs) & set(_held(copy)))] += 1
    return lost


def _held(folder: Path) -> Iterator[bytes]:
    with suppress(ClientError):
        spool = Spool(folder)
        yield from (spool.read(delta) for delta in spool.deltas)
        yield from (record.blob for record in spool.read_log()[0])
        spool.close()


def sqlite_losses(rounds: int, checkpoints: tuple[int, ...], seed: int) -> Counter[int]:
    """Return the same for a database with a checkpoint after the records with these numbers."""
    lost: Counter[int] = Counter()
    blobs = _blobs()
    with tempfile.TemporaryDirectory() as directory:
        folder, kept = Path(directory) / "open", Path(directory) / "kept"
        folder.mkdir()
        with closing(sqlite3.connect(folder / "spool", isolation_level=None)) as database:
            for setting in ("journal_mode=wal", "synchronous=full", "wal_autocheckpoint=0"):
                database.execute(f"pragma {setting}")
            database.execute("create table record(number integer primary key, crc32, blob)")
            for number, blob in enumerate(blobs):
                database.execute(
                    "insert into record values(?, ?, ?)", (number, zlib.crc32(blob), blob)
                )
                if number in checkpoints:
                    database.execute("pragma wal_checkpoint(truncate)")
            shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("*-shm"))
        for copy in _rounds(kept, rounds, seed):
            lost[_RECORDS - len(set(blobs) & set(_in_database(copy / "spool")))] += 1
    return lost


def _in_database(path: Path) -> Iterator[bytes]:
    with suppress(*_UNREADABLE), closing(sqlite3.connect(path)) as database:
        for number in range(_RECORDS):
            with suppress(*_UNREADABLE, TypeError):
                query = "select crc32, blob from record where number = ?"
                for check, blob in database.execute(query, (number,)):
                    if zlib.crc32(blob) == check:
                        yield blob


if __name__ == "__main__":
    main()
