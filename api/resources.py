"""The limits of one worker, and the bound on its memory that follows from them.

The bound is not a forecast. Most memory is rows, and they are counted
(:mod:`api.service.budget`). The bytes per row in each state were measured for every family, as a
process's resident size with a million rows. ``python -m api memory`` prints the sum, and
docs/operations.md explains the choice. The constants below are these figures with a tenth or more
to spare:

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

import re
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from decaysketch.ingest.series import MOST_PLAN_BYTES, MOST_TEXT_BYTES

__all__ = [
    "FOLLOWING",
    "LARGE_ROWS",
    "LONG_UNDER_WAY",
    "Bytes",
    "Limits",
    "Part",
    "bound_bytes",
    "fitted",
    "memory_table",
    "parts",
    "unset_as",
    "within",
]

KIB, MIB, GIB, TIB = (1 << shift for shift in (10, 20, 30, 40))
_UNITS = {"": 1, "B": 1, "KIB": KIB, "MIB": MIB, "GIB": GIB, "TIB": TIB}

PROCESS_BYTES = 320 * MIB  # interpreter, libraries and kernels; 206 MB were measured
RESIDENT_BYTES = 37  # of a row, as it is counted
DECODING_BYTES = 160
WAITING_BYTES = 120
MERGING_BYTES = 200
READ_BYTES = 100  # of a row of a snapshot, and of a row that an answer looks at
JOURNAL_BYTES = 128 * MIB  # transactions of 16 MiB, and chunks of the journal that are read
LARGE_ROWS = 1 << 18  # from here on merges are made one at a time
LONG_UNDER_WAY = 8  # posts of many rows that are half read
OWN_ROWS = 1 << 18  # of posts that this process has committed and not taken yet
ANSWERS_BYTES = 64 * MIB
COUNTING_BYTES = 64 * MIB  # for the count of replaced readings among 2^20 rows
TABLES_BYTES = 512 * MIB  # for decays (20 at most, 24 MiB each), hash functions, predicates
JSON_FACTOR = 30  # of the bytes of a JSON body, parsed
_LEAST_SHARE, _MOST_SHARE = 1 / 64, 64.0  # of the defaults of limits that follow from memory
FOLLOWING = (
    "max_inflated_bytes", "max_inflight_bytes", "max_response_bytes", "max_json_bytes",
    "queue_bytes", "max_post_rows", "max_inflight_rows", "max_sketch_rows", "max_stream_rows",
    "max_resident_rows", "max_key_rows", "max_read_rows", "upstream_queue_rows",
)  # fmt: skip
"""Limits that follow from ``memory``, in proportion to their defaults."""


def _as_bytes(value: Any) -> Any:
    """Convert ``"256 MiB"`` -> 268435456. Return any other value unchanged."""
    if isinstance(value, str) and (match := re.fullmatch(r"\s*(\d{1,18})\s*([A-Za-z]*)\s*", value)):
        number, unit = match.groups()
        if unit.upper() in _UNITS:
            return int(number) * _UNITS[unit.upper()]
    return value


def unset_as(word: str) -> BeforeValidator:
    """Read ``word`` as None, which neither the environment nor TOML can express."""
    return BeforeValidator(lambda value: None if value == word else value)


Bytes = Annotated[int, BeforeValidator(_as_bytes)]


def within(default: Any, low: float, high: float, description: str) -> Any:
    """Return a field with a range."""
    return Field(default=default, ge=low, le=high, description=description)


class Limits(BaseModel):
    """Resources of one worker, equal on all workers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    workers: int = within(
        1,
        1,
        64,
        "Number of worker processes. Each keeps every stream in memory and reads the journal.",
    )
    compute_threads: int = within(
        2,
        1,
        256,
        "Threads of a worker that decode and merge sketches. Long posts and large merges have "
        "one more thread each. Queries have one thread fewer, but at least one, and run "
        "before merges.",
    )
    memory: Annotated[Bytes | None, unset_as("auto")] = within(
        None,
        1,
        TIB,
        "Maximum memory of one worker, such as `3 GiB`. The limits of rows and bytes that you "
        "do not set follow from it. `auto`: they keep their defaults.",
    )

    max_body_bytes: Bytes = within(
        32 * MIB,
        1,
        2 * GIB,
        "Maximum size of a request body as sent. A larger body is rejected with 413.",
    )
    max_inflated_bytes: Bytes = within(
        64 * MIB, 1, 2 * GIB, "Maximum size of a request body after decompression (gzip, zstd)."
    )
    max_inflight_bytes: Bytes = within(
        256 * MIB,
        1,
        TIB,
        "Maximum bytes, decompressed, of all request bodies that one worker holds at a time. "
        "A request beyond it is rejected with 429. One key can use half of it, and an eighth "
        "is reserved for bodies below 16 KiB.",
    )
    max_response_bytes: Bytes = within(
        256 * MIB,
        1,
        TIB,
        "Maximum bytes of responses that clients of one worker have not read yet. A request "
        "beyond it is rejected with 429. One key can use half of it.",
    )
    max_json_bytes: Bytes = within(
        4 * MIB,
        1,
        2 * GIB,
        "Maximum size of a JSON body of observations after decompression. The parsed body "
        "takes 30 times as much memory.",
    )
    max_query_bytes: Bytes = within(
        256 * KIB,
        1,
        2 * GIB,
        "Maximum size of a body with queries, streams, decays or keys after decompression. "
        "The default allows 260 bytes for each of 1,000 queries.",
    )
    max_queries: int = within(1000, 1, 2000, "Maximum queries in one request.")
    max_points: int = within(2000, 1, 10_000, "Maximum times in one time series.")
    max_rows: int = within(100_000, 1, 1 << 27, "Maximum observations in one post.")
    max_interval: int = within(
        1 << 32,
        1,
        (1 << 63) - 1,
        "Maximum sequence numbers in the interval of one post. The default lasts a day at "
        "50,000 rows a second. The numbers of an accepted interval cannot be used again.",
    )
    max_post_rows: int = within(
        1_250_000,
        1,
        1 << 40,
        "Maximum rows of all sketches in one post. A post beyond it is rejected with 413.",
    )
    max_inflight_rows: int = within(
        2_500_000,
        1,
        1 << 40,
        "Maximum rows of all posts that one worker decodes or has not written to the journal "
        "yet. A post beyond it is rejected with 429.",
    )
    max_sketch_rows: int = within(
        2_000_000,
        1,
        1 << 40,
        "Maximum rows of one merged sketch: that of a source or that of a stream. A post "
        "beyond it is rejected with 507.",
    )
    max_stream_rows: int = within(
        16_000_000,
        1,
        1 << 40,
        "Maximum rows that one stream holds in memory, in the sketches of its sources and in "
        "their union. A post beyond it is rejected with 507.",
    )
    max_resident_rows: int = within(
        24_000_000,
        1,
        1 << 40,
        "Maximum rows that one worker holds in memory. A post beyond it is rejected with 507.",
    )
    max_key_rows: int = within(
        16_000_000,
        1,
        1 << 40,
        "Maximum rows that all streams in the scope of one key hold together. A post beyond "
        "it is rejected with 507.",
    )
    max_read_rows: int = within(
        4_000_000,
        1,
        1 << 40,
        "Maximum rows that the queries of one worker read at a time or keep for the next "
        "query. A query beyond it is rejected with 429.",
    )
    max_sources: int = within(
        10_000, 1, 1 << 24, "Maximum sources of one stream. A post beyond it is rejected with 507."
    )
    max_streams: int = within(10_000, 1, 1 << 24, "Maximum streams.")
    max_expressions: int = within(
        32, 0, 1 << 16, "Maximum decays and predicates that one request gives as expressions."
    )
    questions: int = within(
        1024,
        1,
        1 << 20,
        "Maximum queries that a worker runs or has waiting, of all callers. A query beyond it "
        "is rejected with 429.",
    )
    questions_per_caller: int = within(
        64,
        1,
        1 << 20,
        "Maximum queries that a worker runs or has waiting for one key (without keys: for one "
        "address). A query beyond it is rejected with 429. Callers take turns.",
    )
    live_clients: int = within(
        100, 0, 1 << 16, "Maximum connections to the live results of one worker."
    )
    event_clients: int = within(
        1000,
        0,
        1 << 16,
        "Maximum connections to one worker that follow the events of monitors.",
    )
    max_monitors: int = within(1000, 0, 1 << 16, "Maximum monitors of all streams.")
    max_stream_monitors: int = within(16, 0, 32, "Maximum monitors of one stream.")
    monitor_history: int = within(1000, 1, 1 << 16, "Maximum states in the history of one monitor.")
    monitor_history_s: float = within(
        90 * 86_400.0, 1, 1e9, "Seconds after its end when a state leaves the history of a monitor."
    )
    max_questions: int = within(1000, 0, 1 << 16, "Maximum saved queries of all streams.")
    max_stream_questions: int = within(16, 0, 100, "Maximum saved queries of one stream.")
    max_lists: int = within(32, 0, 1 << 10, "Maximum top-k lists of all streams.")
    max_stream_lists: int = within(4, 0, 32, "Maximum top-k lists of one stream.")
    upstream_queue_rows: int = within(
        1_000_000,
        0,
        1 << 40,
        "Maximum rows that wait to be forwarded. Beyond it the relay drops them and sends the "
        "whole stream later, so nothing is lost.",
    )
    queue_posts: int = within(
        1024,
        1,
        1 << 24,
        "Maximum posts that wait for a commit. A post beyond it is rejected with 429. "
        "Requests with many posts or more than 1 MiB have a queue of their own, half as long.",
    )
    queue_bytes: Bytes = within(
        256 * MIB,
        1,
        TIB,
        "Maximum bytes that wait for a commit: one half for requests with many posts or more "
        "than 1 MiB, the other for all others. A post beyond it is rejected with 429.",
    )

    @property
    def is_relay(self) -> bool:
        """Return whether this aggregator forwards rows to another."""
        return False


class Part(NamedTuple):
    """One part in the bound."""

    what: str
    why: str
    bytes: int


def parts(limits: Limits) -> Iterator[Part]:
    """Return all parts of one worker's memory bound."""
    threads = limits.compute_threads + 1 + max(1, limits.compute_threads - 1)
    yield Part("process", "interpreter, libraries, kernels", PROCESS_BYTES)
    yield Part("resident rows", "`max_resident_rows`", limits.max_resident_rows * RESIDENT_BYTES)
    others = (limits.workers - 1) * 2 * limits.max_inflight_rows
    yield Part(
        "rows of other workers",
        "rows that each admits before it reads commits of the others: twice `max_inflight_rows`",
        others * RESIDENT_BYTES,
    )
    alone = limits.max_post_rows + limits.max_sketch_rows
    yield Part(
        "rows in flight",
        "`max_inflight_rows`, or one request with `max_post_rows` and a sketch with "
        "`max_sketch_rows`",
        max(limits.max_inflight_rows, alone) * DECODING_BYTES,
    )
    waiting = limits.max_inflight_rows + OWN_ROWS
    yield Part("rows to be merged", "as many as rows in flight", waiting * WAITING_BYTES)
    # One thread more merges, and reads no bodies.
    merging = limits.max_sketch_rows + limits.max_post_rows + (threads + 1) * LARGE_ROWS
    yield Part(
        "merging",
        f"one sketch with `max_sketch_rows` at a time, and {LARGE_ROWS} rows for each thread",
        merging * MERGING_BYTES,
    )
    read = max(limits.max_read_rows, 2 * limits.max_sketch_rows)
    read += limits.max_read_rows // 4
    yield Part(
        "snapshots and results", "`max_read_rows`, and a quarter in reserve", read * READ_BYTES
    )
    yield Part(
        "bodies",
        "twice `max_inflight_bytes`, `queue_bytes`, and one body",
        2 * limits.max_inflight_bytes + limits.queue_bytes + limits.max_inflated_bytes,
    )
    yield Part("responses", "`max_response_bytes`", limits.max_response_bytes)
    yield Part(
        "parsed JSON",
        f"{JSON_FACTOR} times `max_json_bytes` for each thread",
        threads * JSON_FACTOR * limits.max_json_bytes,
    )
    yield Part(
        "names of series",
        f"texts of {LONG_UNDER_WAY} time series bodies in progress, and stored plans",
        LONG_UNDER_WAY * MOST_TEXT_BYTES + MOST_PLAN_BYTES,
    )
    if limits.is_relay:
        waiting = limits.upstream_queue_rows * WAITING_BYTES
        yield Part(
            "rows to be forwarded",
            "`upstream_queue_rows`, and one sketch of `max_sketch_rows` that is sent",
            waiting + limits.max_sketch_rows * DECODING_BYTES,
        )
    fixed = JOURNAL_BYTES + ANSWERS_BYTES + COUNTING_BYTES + TABLES_BYTES
    yield Part("journal, counts, results and tables in memory", "constants", fixed)


def bound_bytes(limits: Limits) -> int:
    """Return a bound on the resident memory of one worker with these limits, in bytes.

    It holds for a database that was written under limits no larger than these. The server reads all
    acknowledged data, however large.
    """
    return sum(part.bytes for part in parts(limits))


def memory_table(limits: Limits) -> str:
    """Return the bound, part by part, as a Markdown table."""
    lines = ["| of one worker | by | MiB |", "| --- | --- | ---: |"]
    lines += [f"| {part.what} | {part.why} | {part.bytes / MIB:,.0f} |" for part in parts(limits)]
    lines.append(f"| **at most** | | **{bound_bytes(limits) / MIB:,.0f}** |")
    return "\n".join(lines) + "\n"


def fitted(limits: Limits) -> dict[str, int]:
    """Return the limits that nobody set, so that the bound is at most ``limits.memory``.

    All of them have one share of their default, found by bisection: the bound grows with it.

    Raises:
        ValueError: the other limits alone exceed the memory. The message has the least possible.
    """
    unset = [name for name in FOLLOWING if name not in limits.model_fields_set]

    def of_share(share: float) -> dict[str, int]:
        fields = Limits.model_fields
        return {name: max(1, int(fields[name].default * share)) for name in unset}

    def bound(share: float) -> int:
        return bound_bytes(limits.model_copy(update=of_share(share)))

    assert limits.memory is not None
    if (least := bound(_LEAST_SHARE)) > limits.memory:
        raise ValueError(f"expected at least {-(-least // MIB)} MiB with the other limits")
    low, high = _LEAST_SHARE, _MOST_SHARE
    for _ in range(60):
        share = (low + high) / 2
        low, high = (share, high) if bound(share) <= limits.memory else (low, share)
    return of_share(low)
