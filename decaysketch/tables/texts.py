"""Text columns as numbers and times. An invalid text rejects only its row.

Arrow converts clean columns, in some 10 ns a row. If a cell is odd (spaces, a sign, ``NA``, a
decimal comma, a word), regular expressions first convert its column to the plain
form. :mod:`decaysketch.core.text_values` reads the remaining cells one by one. All three ways have
one meaning: the meaning of the last.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, timezone, tzinfo
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from decaysketch.core.text_values import (
    MISSING,
    PLAIN,
    Numerals,
    TextError,
    epoch_nanoseconds,
    integer_of,
    looks_numeric,
    moment_of,
    number_of,
)
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.tables.rejections import Refusals

__all__ = [
    "TimeTexts",
    "cast_clean",
    "holds_numbers",
    "local_to_utc",
    "looks_like_numbers",
    "numbers",
    "numerals_of",
    "texts_of_floats",
    "ticks",
]

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_EXACT_IN_FLOAT = 1 << 53
_INT64 = np.iinfo(np.int64)
_SPACES = r"[\s\x{A0}\x{202F}\x{2009}]"
_NUMBER = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?"
_DIALECTS = ((",", ""), (",", "."), (",", " "), (",", "'"), (".", ","), (".", "'"), (".", " "))
_FIRST = 16  # rows that are cast before all others
_LOOKED_AT = 10_000  # rows that decide a column's content
_MOST = 0.5  # share of them that must agree

_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_MINUTE = r"[T ][0-9]{2}:[0-9]{2}"
_ZONE = r"(Z|[+-][0-9]{2}:?[0-9]{2})"
#: Forms that Arrow reads: a pattern, the zone, and the unit with as many digits.
_KINDS = (
    (rf"^{_DATE}{_MINUTE}(:[0-9]{{2}}(\.[0-9]{{1,6}})?)?{_ZONE}$", "UTC", "us"),
    (rf"^{_DATE}({_MINUTE}(:[0-9]{{2}}(\.[0-9]{{1,6}})?)?)?$", None, "us"),
    (rf"^{_DATE}{_MINUTE}:[0-9]{{2}}\.[0-9]{{7,9}}{_ZONE}$", "UTC", "ns"),
    (rf"^{_DATE}{_MINUTE}:[0-9]{{2}}\.[0-9]{{7,9}}$", None, "ns"),
)
_DAY_FIRST = (r"^([0-9]{2})\.([0-9]{2})\.([0-9]{4})", r"\3-\2-\1")
_DIRECTIVES = {"Y": r"([0-9]{4})"} | dict.fromkeys("mdHMS", r"([0-9]{2})")


# ----------------------------------------------------------------------------------------- numbers


def numbers(
    column: pa.Array, name: str, numerals: Numerals, refusals: Refusals, *, integers: bool
) -> pa.Array:
    """Return a text column as float64, or int64.

    Args:
        column: texts, null where there is none.
        name: the column's name.
        numerals: the number format.
        refusals: receives the rows with a text that is no number. They have 0.
        integers: whether integers are expected.

    Returns:
        float64[n] or int64[n]: null where the text is null or in :data:`MISSING`. O(n).
    """
    found = cast_clean(column, integers) if numerals == PLAIN else None
    if found is not None:
        return found
    texts, plain, well = _in_plain_form(column, numerals)
    reader = integer_of if integers else number_of
    values = np.zeros(len(column), np.int64 if integers else np.float64)
    kept = pc.if_else(pa.array(well), plain, pa.scalar(None, plain.type))
    easy = well & _easy(kept, integers)
    some = kept.filter(pa.array(easy))
    values[easy] = some.cast(pa.int64() if integers else pa.float64()).to_numpy()
    present = texts.is_valid().to_numpy(zero_copy_only=False)
    faults: dict[int, str] = {}
    for row in np.flatnonzero(present & ~easy).tolist():
        try:
            number = reader(texts[row].as_py(), numerals)
            if isinstance(number, int) and not _fits(number, integers):
                raise TextError(_beyond(number, integers))
            values[row] = number
        except TextError as fault:
            faults[row] = str(fault)
    _refuse(faults, name, texts, refusals)
    return pa.array(values, mask=~present)


def cast_clean(column: pa.Array, integers: bool) -> pa.Array | None:
    """Return a column of texts or floats as float64 or int64, by Arrow alone, which knows fewer
    spellings. None: some row is not that clean.
    """
    try:
        found = _cast(column, pa.float64())
        floats = found.fill_null(0.0).to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):
            exact = bool((np.abs(floats) <= _EXACT_IN_FLOAT).all())  # no NaN either
            if exact and not integers:
                return found
            if exact and bool((floats == np.rint(floats)).all()):
                return pa.array(floats.astype(np.int64), mask=_nulls(column))
        floating = pa.types.is_floating(column.type)
        if (
            integers
            and not floating
            and not pc.any(pc.match_substring_regex(column, "[^0-9+-]")).as_py()
        ):
            return column.cast(pa.int64())
    except pa.ArrowInvalid:
        pass
    return None


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a column after its first rows. Arrow goes on after a fault, half a microsecond a row.

    Raises:
        ArrowInvalid: a row cannot be cast.
    """
    column[:_FIRST].cast(kind)
    return column.cast(kind)


def texts_of_floats(column: pa.Array) -> pa.Array:
    """Return floats as Python writes them: a fraction of a second is the intended decimal."""
    found = column.cast(pa.float64()).to_pylist()
    return pa.array([None if each is None else repr(each) for each in found], pa.large_string())


def _nulls(column: pa.Array) -> BoolArray | None:
    if not column.null_count:
        return None
    nulls: BoolArray = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _in_plain_form(column: pa.Array, numerals: Numerals) -> tuple[pa.Array, pa.Array, BoolArray]:
    """Return the texts, null where one means "missing", the same with a decimal point and no
    separators, and the mask of numbers among these.
    """
    texts = column.cast(pa.large_string())
    trimmed = pc.replace_substring_regex(texts, rf"^{_SPACES}+|{_SPACES}+$", "")
    said = pc.if_else(pc.is_in(trimmed, _missing()), None, trimmed)
    mark, group = re.escape(numerals.decimal), _class_of(numerals.thousands)
    well = rf"^[+-]?([0-9]+({mark}[0-9]*)?|{mark}[0-9]+)([eE][+-]?[0-9]{{1,4}})?$"
    if group:
        well += rf"|^[+-]?[0-9]{{1,3}}({group}[0-9]{{2,3}})*{group}[0-9]{{3}}({mark}[0-9]*)?$"
    good = pc.match_substring_regex(said, well).fill_null(False).to_numpy(zero_copy_only=False)
    plain = pc.replace_substring_regex(said, group, "") if group else said
    if numerals.decimal != ".":
        plain = pc.replace_substring(plain, numerals.decimal, ".")
    return pc.if_else(said.is_null(), None, texts), pc.utf8_ltrim(plain, "+"), good


@cache
def _missing() -> pa.Array:
    return pa.array(sorted(MISSING), pa.large_string())  # not at import: pyarrow imports pandas


def _class_of(thousands: str) -> str:
    alike = {" ": r"[ \x{A0}\x{202F}\x{2009}]", "'": r"['\x{2019}]"}
    return alike.get(thousands, re.escape(thousands))


def _easy(plain: pa.Array, integers: bool) -> BoolArray:
    """Return the mask of numbers that Arrow converts as Python does: exact integers, and
    fractions.
    """
    pattern = r"^-?[0-9]{1,15}$" if integers else r"^-?([0-9]{1,15}|[0-9]{0,300}\.[0-9]*)$"
    found: BoolArray = (
        pc.match_substring_regex(plain, pattern).fill_null(False).to_numpy(zero_copy_only=False)
    )
    return found


def _fits(number: int, integers: bool) -> bool:
    if integers:
        return bool(_INT64.min <= number <= _INT64.max)
    return -_EXACT_IN_FLOAT <= number <= _EXACT_IN_FLOAT


def _beyond(number: int, integers: bool) -> str:
    if integers:
        return f"is {number}; expected an integer of 64 bits"
    return (
        f"is {number}, not exact as float64; expected at most 2^53 in magnitude (or "
        "value_type='int64')"
    )


def _refuse(faults: dict[int, str], name: str, texts: pa.Array, refusals: Refusals) -> None:
    bad = np.zeros(len(texts), np.bool_)
    bad[list(faults)] = True
    refusals.refuse(bad, name, lambda row: (faults[row], texts[row].as_py()))


def holds_numbers(texts: pa.Array, numerals: Numerals = PLAIN) -> bool:
    """Return whether most of a column's first texts are numbers."""
    said, _, well = _in_plain_form(texts[:_LOOKED_AT], numerals)
    present = len(said) - said.null_count
    return bool(present) and bool(well.sum() > _MOST * present)


def numerals_of(texts: pa.Array) -> Numerals | None:
    """Return the number format in a column's first texts, if all are numbers in that format and one
    cannot be read in another. None: they are not, or it is ambiguous.

    ``1,234`` may be either. ``20,5`` and ``1.234,5`` have one format.
    """
    some = texts[:_LOOKED_AT].drop_null()
    for decimal, thousands in _DIALECTS:
        said, _, well = _in_plain_form(some, Numerals(decimal, thousands))
        present = said.is_valid().to_numpy(zero_copy_only=False)
        if not present.any() or not well[present].all():
            continue
        mark, group = re.escape(decimal), _class_of(thousands)
        certain = rf"{mark}([0-9]{{1,2}}|[0-9]{{4,}})\D*$"
        if group:
            certain = rf"{group}[0-9]{{3}}{mark}[0-9]"
        if pc.any(pc.match_substring_regex(said, certain)).as_py():
            return Numerals(decimal, thousands)
    return None


def looks_like_numbers(texts: pa.Array) -> str | None:
    """Return one of a column's first texts, if most are numbers in some dialect or have a unit.
    None: they are labels.

    Nobody counts ``20,5`` as a label, so a caller without an explicit type has to give one.
    """
    first = [each for each in texts[:_LOOKED_AT].drop_null().to_pylist() if each not in MISSING]
    found = [each for each in first if looks_numeric(each)]
    return found[0] if len(found) > _MOST * len(first) else None


# ------------------------------------------------------------------------------------------- times


class TimeTexts(NamedTuple):
    """The format of a log's times, and the wanted unit.

    Attributes:
        unit: for plain numbers.
        want: the stream's unit. Both have a wall clock.
        zone: for times that name none. None: UTC.
        format: for ``strptime``. None: ISO 8601, or a number.
    """

    unit: str
    want: str
    zone: tzinfo | None = None
    format: str | None = None

    def tick(self, text: str) -> int:
        """Return one time in the stream's unit. A number in that unit is an integer.

        Raises:
            TextError: no time, or one beyond 64 bits.
        """
        if self.format is None and re.fullmatch(_NUMBER, text.strip()):
            if self.unit == self.want:
                return integer_of(text)
            nanoseconds = epoch_nanoseconds(text, self.unit)
        else:
            nanoseconds = moment_of(text, self.zone, self.format).ns
        tick = nanoseconds // NANOSECONDS[self.want]
        if not _INT64.min <= tick <= _INT64.max:
            raise TextError(f"is {text!r:.120}; expected a time that 64 bits of {self.want} hold")
        return tick


def ticks(column: pa.Array, name: str, how: TimeTexts, refusals: Refusals) -> Int64Array:
    """Return a text column as times in the stream's unit.

    Args:
        column: texts, null where there is none.
        name: the column's name.
        how: their format.
        refusals: receives the rows with a text that is no time, and marks times without a zone.

    Returns:
        int64[n]. 0 where the text is null, or rejected. O(n).
    """
    texts = column.cast(pa.large_string())
    found = np.zeros(len(texts), np.int64)
    todo = texts.is_valid().to_numpy(zero_copy_only=False)
    iso = _in_iso(texts, how.format)
    if iso is not None and not _read_clean(iso, how, found, todo, refusals):
        for pattern, zone, unit in _KINDS:
            matched = pc.match_substring_regex(iso, pattern).fill_null(False)
            rows = np.flatnonzero(matched.to_numpy(zero_copy_only=False) & todo)
            if len(rows):
                moments = _cast_by_halves(iso.take(pa.array(rows)), pa.timestamp(unit, zone))
                _enter(moments, rows, how, found, todo, refusals)
    faults: dict[int, str] = {}
    for row in np.flatnonzero(todo).tolist():
        text = texts[row].as_py()
        try:
            found[row] = how.tick(text)
            refusals.zoneless[row] = how.zone is None and _is_zoneless(text, how)
        except TextError as fault:
            faults[row] = str(fault)
    _refuse(faults, name, texts, refusals)
    return found


def _is_zoneless(text: str, how: TimeTexts) -> bool:
    is_number = how.format is None and re.fullmatch(_NUMBER, text.strip())
    return not is_number and not moment_of(text, how.zone, how.format).zoned


def _in_iso(texts: pa.Array, format: str | None) -> pa.Array | None:
    """Return texts in a plain format as ISO 8601, null where one has another form. None: the format
    is not plain.
    """
    if format is None:
        dotted = pc.any(pc.match_substring(texts[:1], ".")).as_py()
        return pc.replace_substring_regex(texts, *_DAY_FIRST) if dotted else texts
    order, pattern = [], ""
    for place, part in enumerate(re.split(r"%(.)", format)):
        if place % 2 == 0:
            pattern += re.escape(part)
        elif part in _DIRECTIVES and part not in order:
            order.append(part)
            pattern += _DIRECTIVES[part]
        else:
            return None
    if not {"Y", "m", "d"} <= set(order) or ("M" in order) != ("H" in order):
        return None
    at = {part: rf"\{order.index(part) + 1}" for part in order}
    iso = f"{at['Y']}-{at['m']}-{at['d']}"
    if "H" in at:
        iso += f" {at['H']}:{at['M']}:{at.get('S', '00')}"
    whole = pc.match_substring_regex(texts, f"^{pattern}$")
    return pc.if_else(whole, pc.replace_substring_regex(texts, f"^{pattern}$", iso), None)


def _read_clean(
    texts: pa.Array, how: TimeTexts, found: Int64Array, todo: BoolArray, refusals: Refusals
) -> bool:
    """Return whether Arrow reads the complete column at once."""
    rows = np.flatnonzero(todo & texts.is_valid().to_numpy(zero_copy_only=False))
    for _, zone, unit in _KINDS:
        with suppress(pa.ArrowInvalid):
            moments = _cast(texts, pa.timestamp(unit, zone))
            moments = moments if len(rows) == len(moments) else moments.take(pa.array(rows))
            _enter(moments, rows, how, found, todo, refusals)
            return True
    return False


def _enter(
    moments: pa.Array, rows: Int64Array, how: TimeTexts, found: Int64Array, todo: BoolArray,
    refusals: Refusals,
) -> None:  # fmt: skip
    """Enter the times of some rows, null where one was not read. Such rows remain to be read."""
    read = ~np.asarray(moments.is_null().to_numpy(zero_copy_only=False))
    zoneless = moments.type.tz is None
    if zoneless and how.zone is not None:
        moments, there = local_to_utc(moments, how.zone)
        read &= there
    unit, want = NANOSECONDS[moments.type.unit], NANOSECONDS[how.want]
    given = moments.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    if unit < want:
        given = given // np.int64(want // unit)
    elif unit > want:
        read &= np.abs(given) <= _INT64.max // (unit // want)
        given = np.where(read, given, 0) * np.int64(unit // want)
    found[rows[read]] = given[read]
    todo[rows[read]] = False
    if zoneless and how.zone is None:
        refusals.zoneless[rows[read]] = True


def _cast_by_halves(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return timestamps, null where Arrow cannot read a text: O(faults log n) casts."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, kind)
    half = len(texts) // 2
    return pa.concat_arrays([_cast_by_halves(each, kind) for each in (texts[:half], texts[half:])])


def local_to_utc(local: pa.Array, zone: tzinfo) -> tuple[pa.Array, BoolArray]:
    """Convert timestamps on a zone's clocks to UTC. Also return the mask of times that exist:
    clocks skip the others. A time that is shown twice is the earlier one.
    """
    everything = np.ones(len(local), np.bool_)
    if zone is UTC:
        return local, everything
    if isinstance(zone, timezone):
        offset = zone.utcoffset(None)
        return pc.subtract(local, pa.scalar(offset, pa.duration("us"))), everything
    name = getattr(zone, "key", str(zone))
    moments = pc.assume_timezone(local, name, ambiguous="earliest", nonexistent="earliest")
    same = pc.equal(pc.local_timestamp(moments), local).fill_null(True)
    return moments.cast(pa.timestamp(local.type.unit, "UTC")), same.to_numpy(zero_copy_only=False)
