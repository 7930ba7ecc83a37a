"""A bound on a worker's memory, from the settings alone. It is not a forecast.

Most of it is rows, and they are counted (:mod:`api.service.budget`). The bytes per row in each
state were measured for every family, as a process's resident size with a million rows. ``python -m
api memory`` prints the sum, and docs/operations.md explains the choice. The constants below are
these figures with a tenth or more to spare:

===================  ========  ==========  ===========  ========
bytes a row          decay     integral    sum, median  taken as
===================  ========  ==========  ===========  ========
resident             33        44 to 78    25           37 for 33 counted
decoding             67 to 74  101 to 142  101          160
decoded, waiting     66        76 to 111   50           120
merging, writing     94 to 133 104 to 170  97 to 126    200
snapshot and answer  33 + 66   32 + 138    25 + 127     100 for each of the two counted
===================  ========  ==========  ===========  ========
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from api.service.budget import LARGE_ROWS
from api.service.fair_queue import LONG_UNDER_WAY
from api.settings import Settings
from decaysketch.ingest.series import MOST_PLAN_BYTES, MOST_TEXT_BYTES

__all__ = ["Part", "bound_bytes", "memory_table", "parts"]

_MIB = 1 << 20

PROCESS_BYTES = 420 * _MIB  # interpreter, libraries and kernels; 127 MB were measured
RESIDENT_BYTES = 37  # of a row, as it is counted
DECODING_BYTES = 160
WAITING_BYTES = 120
MERGING_BYTES = 200
READ_BYTES = 100  # of a row of a snapshot, and of a row that an answer looks at
JOURNAL_BYTES = 128 * _MIB  # transactions of 16 MiB, and chunks of the journal that are read
OWN_ROWS = 1 << 18  # of posts that this process has committed and not taken yet
ANSWERS_BYTES = 64 * _MIB
COUNTING_BYTES = 64 * _MIB  # what is replaced, of 2^20 rows
TABLES_BYTES = 512 * _MIB  # of decays (at most 20, of 24 MiB each), hash functions and predicates
JSON_FACTOR = 30  # of the bytes of a JSON body, parsed


class Part(NamedTuple):
    """One part in the bound."""

    what: str
    why: str
    bytes: int


def parts(settings: Settings) -> Iterator[Part]:
    """Return all parts of one worker's memory bound."""
    threads = settings.compute_threads + 1 + max(1, settings.compute_threads - 1)
    yield Part("process", "interpreter, libraries, kernels", PROCESS_BYTES)
    yield Part("resident rows", "`max_resident_rows`", settings.max_resident_rows * RESIDENT_BYTES)
    others = (settings.workers - 1) * 2 * settings.max_inflight_rows
    yield Part(
        "rows of other workers",
        "what each admits before it reads of the others: twice `max_inflight_rows`",
        others * RESIDENT_BYTES,
    )
    alone = settings.max_post_rows + settings.max_sketch_rows
    yield Part(
        "rows in flight",
        "`max_inflight_rows`, or one request of `max_post_rows` beside `max_sketch_rows`",
        max(settings.max_inflight_rows, alone) * DECODING_BYTES,
    )
    waiting = settings.max_inflight_rows + OWN_ROWS
    yield Part(
        "rows to be merged", "journaled: as many as may be in flight", waiting * WAITING_BYTES
    )
    # One thread more merges, and reads no bodies.
    merging = settings.max_sketch_rows + settings.max_post_rows + (threads + 1) * LARGE_ROWS
    yield Part(
        "merging",
        f"one sketch of `max_sketch_rows` at a time, and {LARGE_ROWS} rows for each thread",
        merging * MERGING_BYTES,
    )
    read = max(settings.max_read_rows, 2 * settings.max_sketch_rows)
    read += settings.max_read_rows // 4
    yield Part(
        "snapshots and answers", "`max_read_rows`, and a quarter in reserve", read * READ_BYTES
    )
    yield Part(
        "bodies",
        "twice `max_inflight_bytes`, and `queue_bytes` with one body more",
        2 * settings.max_inflight_bytes + settings.queue_bytes + settings.max_inflated_bytes,
    )
    yield Part("responses", "`max_response_bytes`", settings.max_response_bytes)
    yield Part(
        "parsed JSON",
        f"{JSON_FACTOR} times `max_json_bytes` for each thread",
        threads * JSON_FACTOR * settings.max_json_bytes,
    )
    yield Part(
        "names of series",
        f"texts of {LONG_UNDER_WAY} bodies of time series that are half read, and plans that stay",
        LONG_UNDER_WAY * MOST_TEXT_BYTES + MOST_PLAN_BYTES,
    )
    if settings.upstream:
        waiting = settings.upstream_queue_rows * WAITING_BYTES
        yield Part(
            "rows to be passed on",
            "`upstream_queue_rows`, and one sketch of `max_sketch_rows` that is sent",
            waiting + settings.max_sketch_rows * DECODING_BYTES,
        )
    fixed = JOURNAL_BYTES + ANSWERS_BYTES + COUNTING_BYTES + TABLES_BYTES
    yield Part("journal, counts, answers and tables that are kept", "constants", fixed)


def bound_bytes(settings: Settings) -> int:
    """Return a bound on the resident memory of one worker with these settings, in bytes.

    It holds for a database that was written under limits no larger than these. The server reads all
    acknowledged data, however large.
    """
    return sum(part.bytes for part in parts(settings))


def memory_table(settings: Settings) -> str:
    """Return the bound, part by part, as a Markdown table."""
    lines = ["| of one worker | by | MiB |", "| --- | --- | ---: |"]
    lines += [
        f"| {part.what} | {part.why} | {part.bytes / _MIB:,.0f} |" for part in parts(settings)
    ]
    lines.append(f"| **at most** | | **{bound_bytes(settings) / _MIB:,.0f}** |")
    return "\n".join(lines) + "\n"
