"""Family 1: the sketch whose decay is chosen at query time.

For each repetition (hash function) the bytes contain watermarks, the number of rows and the first
row's time. Then come each repetition's rows, bit-packed in canonical order, about the bits of an id
plus two bytes each. A row's level is not stored but recomputed. Labels follow the rows of all
repetitions (``core/codec/labels.py``), and so do columns (``core/codec/records.py``).

With two objectives the header has the watermarks of both samples, and the rows are their union,
each once (:mod:`decaysketch.querytime.objectives`). A row belongs to each sample in which it is
later than the watermark of its level.

Decoding guarantees
    Bytes come from a network. For any bytes, :func:`decode` returns states that an honest
    builder could have reached, or raises one :class:`~decaysketch.errors.CorruptSketchError`, in
    time and memory proportional to the length of the blob (less than 1 KB for each of its bytes,
    since a row takes at least a bit). In addition to lengths, ranges, order, distinctness, capacity
    and checksum it requires three properties:

    * *Canonical.* Encoding the decoded rows again would give the same bytes. This is checked while
      they are unpacked (``core/codec/bitpack.c``). This one rule replaces many: no padding,
      width, base or mode may be other than the stated one.
    * *Plausible.* A watermark ``t_i`` claims that the sample of level ``i`` overflowed at that
      time. The discarded rows cannot be seen. But a row selected at level ``i`` is selected at
      level ``i + 1`` with a chance of about 1/2 or more. If ``c`` rows of level >= ``i`` are later
      than ``t_i``, then ``capacity + 1 - c`` observations or more of level >= ``i`` have exactly
      the time ``t_i``. Where ``t_{i+1} < t_i``, those among them with level >= ``i + 1`` were kept.
      If they are so few that the chance is below 1e-9, the bytes are rejected. The same applies to
      a watermark at the coarsest level, which few ids reach. Otherwise 200 bytes without any row,
      with watermarks far in the future, would silence a stream for ever.
    * *Of one stream.* Level 0 selects everything under any hash: all repetitions have the same
      watermark there, and the same rows later than it.

Observations with one id and many weights are selected together, not independently. The chance that
all n *ids* at one time stop at a level is about ``2^-n``, however many weights each has. So the
second rule can reject an honest sketch with a capacity of 29 or more, if it has few ids with many
weights each at one time. Nothing in the bytes distinguishes it from the bytes that the rule is for:
most such sketches contain no row at all, and *are* the bytes that silence a stream. To accept up to
k weights per id would be to accept these bytes up to a capacity of 29 k. Ids name messages, and a
message has one weight. If it has several at one time, make the weight part of its id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from decaysketch import minhit
from decaysketch.core.codec import reading, writing
from decaysketch.core.codec.reading import MAGIC, VERSION, CopyHeader, Header, Rows, refuse
from decaysketch.core.codec.records import encode_records, read_records
from decaysketch.core.codec.sections import (
    check_canonical,
    check_rows,
    codes_of_ranks,
    decode_rows,
    read_labels,
    read_rows,
)
from decaysketch.core.codec.writing import encode_labels, encode_rows, ranks_of
from decaysketch.core.observations import MISSING_KEY
from decaysketch.core.params import SketchParams
from decaysketch.core.records import comparable_keys
from decaysketch.core.special import binomial_at_most
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.core.withdrawals import fault_of_revisions
from decaysketch.errors import CorruptSketchError
from decaysketch.minhit._top_level import observations_of_top_level
from decaysketch.querytime import _wire_native as _native
from decaysketch.querytime import objectives, strata_wire
from decaysketch.querytime.state import FAMILY, SketchState, params_of_copies, stream_of
from decaysketch.querytime.strata_state import StrataState

__all__ = ["FAMILY", "MAGIC", "VERSION", "decode", "encode", "peek"]

_IMPLAUSIBLE = 1e-9
_WEIGHTS_OF_AN_ID = 32  # more of them at the coarsest level are not believed either


# --------------------------------------------------------------------------------------- encoding


def encode(*states: SketchState, embed_params: bool = True) -> bytes:
    """Return the bytes of a sketch. Equal states have equal bytes.

    Args:
        states: all repetitions of one sketch, in order: one state for each of ``params.copies``. A
            secret id key is represented by its check value only.
        embed_params: whether to store the complete parameters (about 16 bytes). Without them the
            reader needs them: see ``params`` of :func:`decode`.

    Returns:
        Version 1 bytes. O(rows), about 8 ns a row.

    Raises:
        ParameterError: not exactly the repetitions of one sketch.
    """
    params = params_of_copies(states)
    if isinstance(states[0], StrataState):
        return strata_wire.encode_strata(states[0], embed_params=embed_params)
    body = writing.begin(FAMILY, params, embed_params=embed_params)
    marks = [state.watermarks[state.watermarks != NO_WATERMARK].tolist() for state in states]
    if len(params.objectives) > 1:
        writing.put_watermarks(body, marks.pop())
        states = (objectives.joined(*states),)
    for state, each in zip(states, marks, strict=True):
        writing.put_watermarks(body, each)
        writing.put_rows(body, state.times)
    rows, labels = map(_rows_of, states), states[0].labels
    if params.columns:
        bare = (_without_values(each) for each in rows)
        columns = (encode_rows(each, params.value_type) for each in bare)
        parts = [state.records for state in states if state.records is not None]
        return writing.seal(body, *columns, encode_records(parts))
    if labels is None:
        return writing.seal(body, *(encode_rows(each, params.value_type) for each in rows))
    ranked = (each._replace(value_keys=ranks_of(labels, each.value_keys)) for each in rows)
    columns = (encode_rows(each, params.value_type) for each in ranked)
    return writing.seal(body, *columns, encode_labels(labels))


def _rows_of(state: SketchState) -> Rows:
    return Rows(state.times, state.ids, state.weights, state.value_keys)


def _without_values(rows: Rows) -> Rows:
    return rows._replace(value_keys=np.full(len(rows.times), MISSING_KEY, np.int64))


# --------------------------------------------------------------------------------------- decoding


def peek(blob: bytes | bytearray | memoryview) -> Header:
    """Read the header and verify the checksum, without decoding rows.

    Use it for routing, and to reject by size (``rows``), by capacity or by time (``newest``,
    ``watermarks``) before any memory is spent. It checks the header by itself, and that the row
    count is possible. Only :func:`decode` checks that the header agrees with the rows.

    Raises:
        CorruptSketchError: see :func:`decode`.
        TypeError: not bytes at all.
    """
    blob = reading.as_bytes(blob)
    opening = reading.open_blob(blob, FAMILY)
    if opening.strata:
        return _strata_header(opening, blob)
    header = _read_header(opening)
    if header.by_count:
        _check_union(header.copies, header.capacity, blob)
        return header
    for copy in header.copies:
        reading.check_row_count(copy.rows, header.capacity, len(copy.watermarks) + 1, blob)
    return header


def _check_union(copies: Sequence[CopyHeader], capacity: int, blob: bytes) -> None:
    """Reject more rows than two samples can store. They may have all rows in common, or none."""
    levels = sum(len(copy.watermarks) + 1 for copy in copies)
    reading.check_row_count(copies[0].rows, capacity, levels, blob)


def _read_header(opening: reading.Opening) -> Header:
    reader = opening.reader
    by_count = reading.read_watermarks(reader) if opening.by_count else None
    copies = [
        CopyHeader(reading.read_watermarks(reader), *reader.rows()) for _ in range(opening.copies)
    ]
    if by_count is not None:  # either sample may have all the rows
        copies.append(CopyHeader(by_count, copies[0].rows, copies[0].newest))
    return Header.behind(opening, copies)


def _strata_header(opening: reading.Opening, blob: bytes) -> Header:
    rows, newest, strata = strata_wire.peek_strata(opening.reader, blob, opening.capacity)
    return Header.behind(opening, [CopyHeader((), rows, newest)], strata=strata)


def decode(
    blob: bytes | bytearray | memoryview,
    *,
    params: SketchParams | None = None,
    id_key: bytes | None = None,
    check_plausible: bool = True,
) -> tuple[SketchState, ...]:
    """Return the states that :func:`encode` wrote.

    Args:
        blob: the bytes. Nothing in them is trusted.
        params: the expected parameters. Needed if the bytes contain a fingerprint only.
            The capacity is taken from the bytes, not from here.
        id_key: the secret of a stream that has one (levels cannot be recomputed without it).
            ``params`` contain it as well, so one of the two is enough.
        check_plausible: False skips the statistical test of the watermarks (see the module
            docstring) for bytes that this program wrote itself.

    Returns:
        One state for each repetition. Encoding them again gives the same bytes (without optional
        sections, which this release skips). O(rows), about 18 ns a row.

    Raises:
        CorruptSketchError: no honest builder could have written the bytes. The message names the
            found and the expected value.
        IncompatibleSketchError: the bytes belong to a stream with other parameters than ``params``,
            or under another ``id_key``, or need one of the two and it was not given.
        ParameterError: both ``params`` and ``id_key`` given, or an ``id_key`` of a wrong length.
    """
    blob = reading.as_bytes(blob)
    opening = reading.open_blob(blob, FAMILY)
    header = _strata_header(opening, blob) if opening.strata else _read_header(opening)
    params = reading.params_of(opening, params, id_key)
    if header.strata is not None:
        (copy,), plausible = header.copies, check_plausible and params.id_mix == "keyed"
        counts = copy.rows, copy.newest, header.strata
        state, at = strata_wire.read_strata(
            blob, params, header.columns_at, counts, plausible=plausible
        )
        reading.skip_optional_sections(blob, header.optional_flags, at)
        return (state,)
    plausible = check_plausible and params.id_mix == "keyed"
    if header.by_count:
        states, at = _read_union(blob, header, params)
    else:
        states, at = _read_states(blob, header, params, plausible=plausible)
    if params.value_type == "label":
        ranks = [state.value_keys for state in states]
        labels, at = read_labels(blob, at, ranks, params.id_key)
        states = [
            replace(state, value_keys=codes_of_ranks(labels, each), labels=labels)
            for state, each in zip(states, ranks, strict=True)
        ]
    if params.columns:
        states, at = _with_records(blob, at, params, states)
    if header.by_count:
        states = _parted(states[0], header, plausible=plausible)
    reading.skip_optional_sections(blob, header.optional_flags, at)
    for other in states[1:]:
        _check_of_one_stream(states[0], other)
    return tuple(states)


def _read_states(
    blob: bytes, header: Header, params: SketchParams, *, plausible: bool
) -> tuple[list[SketchState], int]:
    """Return the state for each repetition, and the end of their bytes."""
    for number, copy in enumerate(header.copies):
        with _naming_copy(number, params):
            copy.check(params.capacity, params.levels + 1)
    states, at = _read_flawless(blob, header, params, plausible=plausible)
    if len(states) != len(header.copies):
        states, at = _read_with_care(blob, header, params, plausible=plausible)
    return states, at


def _read_union(blob: bytes, header: Header, params: SketchParams) -> tuple[list[SketchState], int]:
    """Return the rows of two samples, with the watermarks by weight, and the end of their bytes."""
    for copy in header.copies:
        copy.check(params.capacity, 2 * (params.levels + 1))
        if len(copy.watermarks) > params.levels + 1:
            refuse(f"{len(copy.watermarks)} watermarks; there are {params.levels + 1} levels")
    _check_union(header.copies, params.capacity, blob)
    first = header.copies[objectives.BY_WEIGHT]
    rows, at = read_rows(params, blob, header.columns_at, first.rows, first.newest)
    levels = np.zeros(len(rows.times), np.int8)
    return [_state(params, objectives.BY_WEIGHT, first, rows, levels)], at


def _parted(union: SketchState, header: Header, *, plausible: bool) -> list[SketchState]:
    """Return the states by weight and by count. Check either, and that each row is in one."""
    marks = [_marks_of(union.params, copy) for copy in header.copies]
    late = [union.times > each[objectives.top_levels(union, k)] for k, each in enumerate(marks)]
    in_none = ~(late[0] | late[1])
    if in_none.any():
        row = int(in_none.argmax())
        refuse(
            f"row {row} has time {int(union.times[row])}; expected one later than the watermark of "
            "its level by weight or by count"
        )
    states = objectives.parted(union, marks)
    for state, name in zip(states, union.params.objectives, strict=True):
        with _naming(f"by {name}"):
            _check_watermarks(state, check_plausible=plausible)
    return states


def _with_records(
    blob: bytes, at: int, params: SketchParams, states: Sequence[SketchState]
) -> tuple[list[SketchState], int]:
    """Return the states with their columns, and the end of the bytes."""
    for state in states:
        if (state.value_keys != MISSING_KEY).any():
            refuse("a row has a value, and the stream has columns; expected none")
    parts, at = read_records(blob, at, params.columns, [len(state) for state in states])
    for part in parts:
        if (fault := fault_of_revisions(params, part)) is not None:
            refuse(fault)
    return [
        replace(state, value_keys=np.arange(len(state), dtype=np.int64), records=part)
        for state, part in zip(states, parts, strict=True)
    ], at


def _read_flawless(
    blob: bytes, header: Header, params: SketchParams, *, plausible: bool
) -> tuple[list[SketchState], int]:
    """Read the repetitions' states, each by one kernel that makes all the checks below.

    Return as many as are certainly valid, one after the other, and the end of their bytes. Rare
    cases, and states that take much memory for their bytes, are left to :func:`_read_with_care`.
    """
    states: list[SketchState] = []
    at, stop = header.columns_at, len(blob) - reading.CHECKSUM_BYTES
    for number, copy in enumerate(header.copies):
        if copy.newest is None or copy.rows > len(blob) or len(copy.watermarks) > params.levels:
            break
        rows, levels = Rows.room(copy.rows), np.empty(copy.rows, np.int8)
        at = _native.read(
            stream_of(params, number, plausible=plausible), blob, at, stop,
            first_time=copy.newest, marks=np.array(copy.watermarks, np.int64), times=rows.times,
            ids=rows.ids, weights=rows.weights, values=rows.value_keys, levels=levels,
        )  # fmt: skip
        if at < 0:
            break
        states.append(_state(params, number, copy, rows, levels))
    return states, at


def _read_with_care(
    blob: bytes, header: Header, params: SketchParams, *, plausible: bool
) -> tuple[list[SketchState], int]:
    """Read the same, one check after the other. The error names the first check that fails."""
    at = header.columns_at
    states = []
    for number, copy in enumerate(header.copies):
        with _naming_copy(number, params):
            rows, end = decode_rows(blob, at, copy.rows, copy.newest, params.value_type)
            check_rows(params, rows)
            check_canonical(blob, at, end, rows, params.value_type)
        levels = minhit.top_levels(params, rows.ids, rows.weights, copy=number)
        states.append(_state(params, number, copy, rows, levels))
        at = end
    for state in states:
        with _naming_copy(state.copy, params):
            _check_watermarks(state, check_plausible=plausible)
    return states, at


def _naming_copy(number: int, params: SketchParams) -> AbstractContextManager[None]:
    """Add the repetition to errors inside, if there are several."""
    return nullcontext() if params.copies == 1 else _naming(f"copy {number}")


@contextmanager
def _naming(sample: str) -> Iterator[None]:
    """Add a sample's name to errors inside."""
    try:
        yield
    except CorruptSketchError as fault:
        raise CorruptSketchError(f"{sample}: {fault}") from None


def _state(
    params: SketchParams, number: int, copy: CopyHeader, rows: Rows, levels: npt.NDArray[np.int8]
) -> SketchState:
    watermarks = _marks_of(params, copy)
    return SketchState(
        params, rows.value_keys, rows.weights, rows.times, rows.ids, levels, watermarks, number
    )


def _marks_of(params: SketchParams, copy: CopyHeader) -> npt.NDArray[np.int64]:
    watermarks = np.full(params.levels + 1, NO_WATERMARK, dtype=np.int64)
    watermarks[: len(copy.watermarks)] = copy.watermarks
    return watermarks


def _check_watermarks(state: SketchState, *, check_plausible: bool) -> None:
    """Check the state's definition (:mod:`decaysketch.querytime.state`), as far as kept rows
    show it.
    """
    params, times, levels, watermarks = state.params, state.times, state.levels, state.watermarks
    capacity, top = params.capacity, params.levels
    expired = times <= watermarks[levels]
    if expired.any():
        row = int(expired.argmax())
        level = int(levels[row])
        refuse(
            f"row {row}, of top level {level}, has time {int(times[row])}; expected one later "
            f"than that level's watermark {int(watermarks[level])}"
        )
    if watermarks[top] != NO_WATERMARK:
        weights = _WEIGHTS_OF_AN_ID if check_plausible else params.max_weight
        most = observations_of_top_level(params, state.copy, weights)
        if most <= capacity:
            refuse(
                f"level {top} has watermark {int(watermarks[top])}, yet at most {most} "
                f"observations reach it; expected none at capacity {capacity}"
            )
    # Times descend: rows later than a watermark are a prefix, longer from level to level. Where
    # no watermark is set it is all rows, and the first such level has the most.
    known = watermarks[: int(np.count_nonzero(watermarks != NO_WATERMARK)) + 1]
    ascending = times[::-1]
    later_than = len(times) - np.searchsorted(ascending, known, side="right")
    not_before = len(times) - np.searchsorted(ascending, known, side="left")
    by_level = np.zeros(top + 1, dtype=np.int64)
    counted = 0
    for i, (later_end, tied_end) in enumerate(
        zip(later_than.tolist(), not_before.tolist(), strict=True)
    ):
        by_level += np.bincount(levels[counted:later_end], minlength=top + 1)
        counted = later_end
        later = int(by_level[i:].sum())
        if later > capacity:
            refuse(
                f"level {i} has {later} rows later than its watermark; the capacity is {capacity}"
            )
        if check_plausible and i < top and watermarks[i + 1] < watermarks[i]:
            _check_plausible(state, i, capacity + 1 - later, tied_end - later_end)


def _check_plausible(state: SketchState, i: int, overflowing: int, tied: int) -> None:
    """Reject a watermark that claims too many unseen observations.

    At least ``overflowing`` observations with level >= i have exactly the time ``t_i``. Among them,
    those with level >= i + 1 were kept: ``tied`` rows. An observation with level >= i also has
    level >= i + 1 with probability ``p_{i+1} / p_i`` if its weight is 1, and more if it is larger.
    """
    if tied >= overflowing:
        return
    params = state.params
    goes_up = (params.prime >> i + 1) / (params.prime >> i)
    chance = binomial_at_most(tied, overflowing, goes_up)
    if chance < _IMPLAUSIBLE:
        refuse(
            f"watermark {int(state.watermarks[i])} of level {i} claims that {overflowing} "
            f"observations or more share that time, yet {tied} are of level {i + 1}: a chance of "
            f"{chance:.1e}; expected at least {_IMPLAUSIBLE:.0e}"
        )


def _check_of_one_stream(first: SketchState, other: SketchState) -> None:
    """Check that all repetitions share the level 0 watermark and the rows later than it.

    Level 0 selects everything. If the watermark is not set, all rows must be the same.
    """
    marks = [int(state.watermarks[0]) for state in (first, other)]
    if marks[0] != marks[1]:
        found = ["not set" if mark == NO_WATERMARK else mark for mark in marks]
        refuse(
            f"level 0 has watermark {found[1]} in copy {other.copy}, and {found[0]} in copy 0; "
            "expected the same"
        )
    later = [int(np.count_nonzero(state.times > marks[0])) for state in (first, other)]
    if later[0] != later[1]:
        refuse(
            f"copy {other.copy} has {later[1]} rows later than the watermark of level 0, and copy "
            f"0 has {later[0]}; expected the same"
        )
    pair = [_rows_of(first), _rows_of(other)]
    if first.records is not None and other.records is not None:
        keys = comparable_keys([first.records, other.records])
        pair = [rows._replace(value_keys=each) for rows, each in zip(pair, keys, strict=True)]
    for name, ours, theirs in zip(Rows._fields, *pair, strict=True):
        differ = ours[: later[0]] != theirs[: later[0]]
        if differ.any():
            row = int(differ.argmax())
            refuse(
                f"{name} of row {row} is {int(theirs[row])} in copy {other.copy}, and "
                f"{int(ours[row])} in copy 0; expected the same, at a time later than the "
                "watermark of level 0"
            )
