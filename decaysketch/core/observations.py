"""Observations: columns (value, weight, timestamp, id), validated once, at the edge.

Everything behind this module works on four int64 columns of equal length and trusts them. A fault
is one :class:`~decaysketch.errors.ObservationError` that names the column, the first offending row
and its value. The complete batch is rejected.

Value keys
    A value is stored as an int64 *value key*. Keys have the same order as their values, so kernels,
    merging and bytes do not depend on value types. For "int64" the key is the value. For "float64"
    it is the bit pattern, with the magnitude bits of negative numbers inverted (-0.0 is first made
    0.0, and NaN and infinities are rejected). For a label it is the code, and here labels are codes
    already (:mod:`decaysketch.core.labels`). A range has a key above all numbers
    (:mod:`decaysketch.core.ranges`). A missing value has the smallest int64 as its key, which
    orders it before every value. That number is rejected as a value.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from decaysketch.core import _native, hashing, ranges
from decaysketch.core.params import SketchParams
from decaysketch.core.row_check import (
    MISSING,
    NO_INTEGER,
    NO_NUMBER,
    OUT_OF_BOUNDS,
    TIME_LIMIT,
    TIMES,
    Limit,
    Refusal,
    RowCheck,
    ids_of_bits,
)
from decaysketch.errors import ObservationError, ParameterError

__all__ = [
    "MISSING_KEY",
    "TIME_LIMIT",
    "Observations",
    "check_integer_time",
    "check_time",
    "check_within",
    "decode_values",
    "encode_values",
    "float_keys",
    "integer_column",
    "no_floats",
    "no_values",
    "observation_ids",
    "prepare",
    "scale_weights",
]

Int64Array = npt.NDArray[np.int64]

MISSING_KEY = np.iinfo(np.int64).min

_MAGNITUDE = np.int64(np.iinfo(np.int64).max)
_LARGEST_FLOAT = int(np.float64(np.finfo(np.float64).max).view(np.int64))  # its key
_NEGATIVE_ZERO = -1  # the key that -0.0 would have, but it is stored as 0.0


class Observations(NamedTuple):
    """Validated columns: int64, contiguous, read-only, with equal length. Weights are positive."""

    value_keys: Int64Array
    weights: Int64Array
    timestamps: Int64Array
    ids: Int64Array

    def not_after(self, time: int | None) -> Observations:
        """Return the rows with no later timestamp, or all rows if there is no such time.

        Raises:
            ParameterError: ``time`` is no integer.
        """
        if time is None:
            return self
        check_integer_time("not_after", time)
        in_time = self.timestamps <= time
        return self if in_time.all() else Observations(*(column[in_time] for column in self))


def prepare(
    params: SketchParams,
    values: npt.ArrayLike | None,
    weights: npt.ArrayLike,
    timestamps: npt.ArrayLike,
    ids: npt.ArrayLike,
) -> Observations:
    """Validate a batch and convert it into kernel form.

    Args:
        params: parameters of the sketch that will accept the batch.
        values: numbers (one number serves all rows). A masked array, None entries or None for the
            complete column mark missing values.
        weights: integers 0..max_weight (one number serves all rows). Rows with weight 0 are kept
            here and contribute nothing later.
        timestamps: integers in the stream's time unit, at most 2^62 in magnitude.
        ids: integers in ``[0, 2^id_bits)``.

    Returns:
        The columns. Rows with weight 0 are still in them.

    Raises:
        ObservationError: see the module docstring.
    """
    keys = _native.value_keys(
        values, weights, timestamps, ids, floats=params.value_type == "float64",
        max_weight=params.max_weight, id_limit=1 << params.id_bits,
    )  # fmt: skip
    if keys is not None:  # every column is an array of the right type, and in bounds
        given = cast("tuple[Int64Array, ...]", (weights, timestamps, ids))
        columns = Observations(keys, *(column.view() for column in given))
        for column in columns:
            column.setflags(write=False)
        return columns
    id_column = integer_column("ids", ids)
    rows = len(id_column)
    if values is None:
        value_keys = np.full(rows, MISSING_KEY, dtype=np.int64)
    else:
        value_keys = encode_values(values, params.value_type)
        if value_keys.shape == (1,) and rows != 1 and np.ndim(values) == 0:
            value_keys = np.full(rows, value_keys[0], dtype=np.int64)
    weight_column = integer_column("weights", weights)
    if weight_column.shape == (1,) and rows != 1 and np.ndim(weights) == 0:
        weight_column = np.full(rows, weight_column[0], dtype=np.int64)
    columns = Observations(
        value_keys, weight_column, integer_column("timestamps", timestamps), id_column
    )
    lengths = dict(zip(("values", "weights", "timestamps", "ids"), map(len, columns), strict=True))
    for name, length in lengths.items():
        if length != rows:
            raise ObservationError(
                f"columns have unequal lengths: {name} has {length} rows, ids has {rows}",
                column=name,
            )
    check = RowCheck(rows, raises=True)
    check.within(columns.weights, "weights", Limit.named(0, params.max_weight, "max_weight"))
    check.within(columns.timestamps, "timestamps", TIMES)
    check.within(columns.ids, "ids", ids_of_bits(params.id_bits))
    for column in columns:
        column.setflags(write=False)  # every array is read-only for the kernels
    return columns


def integer_column(name: str, column: npt.ArrayLike) -> Int64Array:
    """Return an integer column as a contiguous one-dimensional int64 view or copy."""
    array = _one_dimension(name, column)
    if array.dtype.kind == "O":
        array = _objects_to_integers(name, array)
    if np.ma.isMaskedArray(array) and np.ma.getmaskarray(array).any():
        Refusal(int(np.ma.getmaskarray(array).argmax()), name, MISSING).throw()
    if array.dtype.kind not in "iu":
        _refuse_dtype(name, array, "integers")
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
        row = int(array.argmax())
        Refusal(row, name, OUT_OF_BOUNDS, int(array[row]), "at most 2^63 - 1").throw()
    return np.ascontiguousarray(array, dtype=np.int64).view()


def check_integer_time(name: str, time: object) -> int:
    """Return ``time`` as an int.

    Raises:
        ParameterError: it is no integer.
    """
    if isinstance(time, bool) or not isinstance(time, (int, np.integer)):
        raise ParameterError(f"{name} is {time!r}; expected an integer time")
    return int(time)


def check_time(name: str, time: object) -> int:
    """Return ``time`` as an int that a clock may show.

    Raises:
        ParameterError: it is no integer, or more than 2^62 in magnitude.
    """
    number = check_integer_time(name, time)
    if not -TIME_LIMIT <= number <= TIME_LIMIT:
        raise ParameterError(f"{name} is {time!r}; expected at most 2^62 in magnitude")
    return number


def _one_dimension(name: str, column: npt.ArrayLike) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = column if isinstance(column, np.ndarray) else np.asarray(column)
    except (ValueError, OverflowError) as fault:
        raise ObservationError(f"{name} is not a column of numbers: {fault}", column=name) from None
    if array.ndim > 1:
        raise ObservationError(
            f"{name} has {array.ndim} dimensions, shape {array.shape}; expected one column",
            column=name,
        )
    if array.size == 0 and array.dtype.kind == "f":  # an empty list has no type of its own
        array = array.astype(np.int64)
    return np.atleast_1d(array) if array.ndim == 0 else array


def _objects_to_integers(name: str, array: npt.NDArray[Any]) -> Int64Array:
    for row, item in enumerate(array):
        if isinstance(item, bool) or not isinstance(item, (int, np.integer)):
            Refusal(row, name, NO_INTEGER, item, "an integer").throw()
        if not -(1 << 63) <= item < 1 << 63:
            Refusal(row, name, OUT_OF_BOUNDS, item, "at most 2^63 - 1 in magnitude").throw()
    return array.astype(np.int64)


def _refuse_dtype(name: str, array: npt.NDArray[Any], expected: str) -> None:
    sample = f", such as {array.flat[0]!r}" if array.size else ""
    raise ObservationError(
        f"{name} has dtype {array.dtype}{sample}; expected {expected}", column=name
    )


def check_within(name: str, column: Int64Array, limit: Limit) -> None:
    """Raise ObservationError for the first entry beyond a limit."""
    RowCheck(len(column), raises=True).within(column, name, limit)


# ------------------------------------------------------------------------------------------ values


def encode_values(values: npt.ArrayLike, value_type: str) -> Int64Array:
    """Return the value keys for a number column (see the module docstring).

    Args:
        values: numbers. Masked entries and None are missing. Integers are accepted as "float64"
            where they are exact. Floats are never accepted as "int64". Or, for "float64", value
            keys.
        value_type: "float64" or "int64", or "label" for code columns.

    Returns:
        int64 array, a copy wherever it differs from the input.

    Raises:
        ObservationError: NaN, an infinity, the value -2^63, a wrong dtype, or, in an integer
            column, an integer that float64 cannot represent.
    """
    if isinstance(values, ranges.EncodedValues):
        return _encoded(values.keys, value_type)
    array = _one_dimension("values", values)
    missing = np.ma.getmaskarray(array) if np.ma.isMaskedArray(array) else None
    array = np.ma.getdata(array)
    if array.dtype.kind == "O":
        none = np.array([item is None for item in array], dtype=bool)
        missing = none if missing is None else missing | none
        array = _objects_to_numbers(array, missing)
    if missing is not None and missing.any():
        array = np.where(missing, np.zeros(1, dtype=array.dtype), array)
    encode = _encode_floats if value_type == "float64" else _encode_integers
    keys = encode(array)
    if missing is not None and missing.any():
        keys[missing] = MISSING_KEY
    return keys


def _encoded(keys: Int64Array, value_type: str) -> Int64Array:
    """Check value keys, with ranges or without."""
    bad = no_values(keys) & (keys != MISSING_KEY)
    if value_type != "float64" or bad.any():
        raise ObservationError(
            f"values are float64 keys with ranges; the stream's value_type is {value_type!r}"
            if value_type != "float64"
            else f"values[{int(bad.argmax())}] is not the key of a value",
            column="values",
        )  # fmt: skip
    return keys.copy()


def _objects_to_numbers(array: npt.NDArray[Any], missing: npt.NDArray[np.bool_]) -> Any:
    for row in np.flatnonzero(~missing):
        item = array[row]
        if isinstance(item, bool) or not isinstance(item, (int, float, np.integer, np.floating)):
            Refusal(int(row), "values", NO_NUMBER, item, "a number").throw()
    present = array[~missing]
    integers = all(isinstance(item, (int, np.integer)) for item in present)
    numbers = np.zeros(len(array), dtype=np.int64 if integers else np.float64)
    try:
        numbers[~missing] = present
    except OverflowError:
        row = next(r for r in np.flatnonzero(~missing) if not -(1 << 63) <= array[r] < 1 << 63)
        Refusal(
            int(row), "values", OUT_OF_BOUNDS, array[row], "less than 2^63 in magnitude"
        ).throw()
    return numbers


def _encode_integers(array: npt.NDArray[Any]) -> Int64Array:
    if array.dtype.kind not in "iu":
        _refuse_dtype("values", array, "integers (the stream's value_type is 'int64')")
    keys = integer_column("values", array).copy()
    RowCheck(len(keys), raises=True).not_reserved(keys, "values")
    return keys


def float_keys(array: npt.NDArray[np.floating[Any]]) -> Int64Array:
    """Return the keys for numbers, which may be infinite or NaN. O(n)."""
    # x + 0.0 copies and turns -0.0 into 0.0.
    bits = (array.astype(np.float64, copy=False) + 0.0).view(np.int64)
    keys: Int64Array = bits ^ ((bits >> np.int64(63)) & _MAGNITUDE)
    return keys


def _encode_floats(array: npt.NDArray[Any]) -> Int64Array:
    if array.dtype.kind in "iu":
        RowCheck(len(array), raises=True).exact(array, "values", "value_type='int64'")
        array = array.astype(np.float64)
    elif array.dtype.kind != "f" or array.dtype.itemsize > 8:
        _refuse_dtype("values", array, "float64 or exact integers")
    keys = float_keys(array)  # finite numbers alone have keys within these bounds
    if keys.size and (int(keys.max()) > _LARGEST_FLOAT or int(keys.min()) < ~_LARGEST_FLOAT):
        RowCheck(len(array), raises=True).finite(array, "values")
    return keys


def no_floats(keys: Int64Array) -> npt.NDArray[np.bool_]:
    """Return bool[keys]: no float64 for rows. These are finite, and not -0.0. O(keys)."""
    found: npt.NDArray[np.bool_] = (keys > _LARGEST_FLOAT) | (keys < ~_LARGEST_FLOAT)
    found |= keys == _NEGATIVE_ZERO
    return found


def no_values(keys: Int64Array) -> npt.NDArray[np.bool_]:
    """Return bool[keys]: neither a float64 nor a range. O(keys)."""
    found = no_floats(keys)
    if found.any():
        of_range = found & ranges.are_ranges(keys)
        found[of_range] = ranges.illegal(keys[of_range])
    return found


def decode_values(
    keys: Int64Array, value_type: str
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return the values for value keys, and where they are missing.

    Returns:
        ``(values, missing)``: an array with dtype ``value_type``, int64 for labels (0 where
        missing), and a bool array. A range is its middle.
    """
    missing = keys == MISSING_KEY
    if value_type != "float64":
        return np.where(missing, np.int64(0), keys), missing
    bits = keys ^ ((keys >> np.int64(63)) & _MAGNITUDE)
    values = np.where(missing, 0.0, bits.view(np.float64))
    of_range = ranges.are_ranges(keys)
    if of_range.any():
        values[of_range] = ranges.decoded(keys[of_range]).values
    return values, missing


# ------------------------------------------------------------------------------- ids and weights


def observation_ids(*columns: Any, params: SketchParams) -> Int64Array:
    """Return ids below ``2^id_bits`` from any key of a message, such as (source, sequence).

    Keys are hashed to 64 bits, keyed by the stream's seed or secret, the same on every platform,
    and reduced to their top ``id_bits`` bits. Among ``n`` distinct keys about the fraction
    ``n / 2^(id_bits + 1)`` is lost to collisions. Estimates report it as ``collision_bias``.

    Use keys that identify the message, never anything that differs between its duplicates (the
    clock or the signal strength of the receiver).

    Args:
        columns: one or more equally long columns (or single keys) of integers, ``str``,
            ``bytes`` or ``uuid.UUID``. A UUID is the same key as its text in the canonical form,
            ``str(uuid)``, which logs and requests use. Its 16 bytes are another key.
        params: parameters of the stream.

    Returns:
        int64 array, one id for each row. O(rows) time.

    Raises:
        ObservationError: columns of unequal length, or a key that is none of these.

    Example:
        >>> params = SketchParams(max_weight=1, id_bits=48)
        >>> len(observation_ids(["node-7", "node-7"], [1, 2], params=params))
        2
    """
    hashed = hashing.hash_keys(columns, params.key_word)
    if params.id_bits == 0:
        return np.zeros(len(hashed), dtype=np.int64)
    return (hashed >> np.uint64(64 - params.id_bits)).astype(np.int64)


def scale_weights(weights: npt.ArrayLike, scale: float, *, max_weight: int) -> Int64Array:
    """Return real weights as integers 0..max_weight: ``round(weight * scale)``.

    An estimate of ``sum`` is then in units of ``1 / scale``: divide it by ``scale``. The rounding
    changes each weight by at most ``0.5 / scale``. A positive weight never becomes 0.

    Args:
        weights: real numbers >= 0.
        scale: units per 1.0 of weight, > 0.
        max_weight: the stream's largest integer weight.

    Raises:
        ObservationError: a weight that is negative, not finite, or too large after scaling.
        ParameterError: a scale that is not a positive number.
    """
    if not isinstance(scale, (int, float, np.number)) or not (np.isfinite(scale) and scale > 0):
        raise ParameterError(f"scale is {scale!r}; expected a positive number")
    if np.ma.is_masked(weights):
        raise ObservationError("weights has missing entries", column="weights")
    try:
        array = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError) as fault:
        raise ObservationError(
            f"weights is not a column of numbers: {fault}", column="weights"
        ) from None
    scaled = np.rint(array * scale)
    scaled = np.where((array > 0) & (scaled == 0), 1.0, scaled)
    bad = ~((array >= 0) & (scaled <= max_weight))
    if bad.any():
        row = int(bad.argmax())
        raise ObservationError(
            f"weights[{row}] is {float(array.flat[row])}, {float(scaled.flat[row])} after scaling "
            f"by {scale}; expected 0 to {max_weight}",
            column="weights", row=row, value=float(array.flat[row]),
        )  # fmt: skip
    return scaled.astype(np.int64)
