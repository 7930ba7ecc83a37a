"""Whether a sketch is smaller than its log: ``python -m quality.whether LOG ...``.

Of each log, in Parquet with the columns ``event, source, msg, value``, or plain readings as they
stand (``--time``, ``--id``, ``--value``): the bytes of all deliveries, of every observation once
(Parquet, zstd -9, in the order of time), of its ids alone (8 bytes each), and of the sketches that
answer sums within 2 % and 5 %. The table of ``docs/should-i-use-it.md`` is its output.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.parquet as pq
import typer

import decaysketch as ds
from decaysketch.core.sizing import DEFAULT_ACCURACY, DEFAULT_BY_KEY, capacity_for

__all__ = ["row_of"]

_LEVEL = 9  # of zstd


def _packed(table: pa.Table) -> int:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=_LEVEL)
    return len(sink.getvalue())


def row_of(
    path: Path, time: str, ids: list[str], value: str | None, unit: str | None
) -> tuple[int, int, list[int]]:
    """Distinct observations and deliveries of a log; bytes of all, of each once, of ids, and of the
    sketches of 2 % and 5 %."""
    named = list(dict.fromkeys([time, *ids, *([value] if value else [])]))
    table = pq.read_table(path, columns=named)
    once = table.group_by(ids).aggregate([(name, "max") for name in named if name not in ids])
    whole = ds.SketchParams(capacity=1 << 20, time_unit=unit or "us")
    sketches = []
    for accuracy in (DEFAULT_ACCURACY, DEFAULT_BY_KEY):
        sketch = ds.DecaySketch(whole.with_capacity(capacity_for(accuracy)))
        sketch.update_frame(table, time=time, id=ids, value=value, check_units=False)
        sketches.append(len(sketch.to_bytes()))
    first = f"{time}_max" if time not in ids else time
    sizes = [_packed(table.sort_by(time)), _packed(once.sort_by(first)), 8 * len(once), *sketches]
    return len(once), len(table), sizes


def main(
    logs: Annotated[list[Path], typer.Argument(help="Parquet files.")],
    time: Annotated[str, typer.Option(help="Column of times.")] = "event_us",
    id: Annotated[str, typer.Option(help="Columns of ids, with commas.")] = "source,msg",
    value: Annotated[str, typer.Option(help="Column of values; '' for none.")] = "value",
    unit: Annotated[str, typer.Option(help="Of times that are integers.")] = "us",
) -> None:
    """Print a row of the table for each log."""
    print("| log | distinct (deliveries) | Parquet all / each once | ids 8 B | 2 % | 5 % |")
    print("|---|---|---|---|---|---|")
    for path in logs:
        distinct, deliveries, sizes = row_of(path, time, id.split(","), value or None, unit)
        kb = [f"{size / 1000:,.0f}" for size in sizes]
        print(
            f"| {path.stem} | {distinct:,} ({deliveries:,}) | {kb[0]} / {kb[1]} kB | {kb[2]} kB "
            f"| {kb[3]} kB | {kb[4]} kB |"
        )


if __name__ == "__main__":
    typer.run(main)
