"""The frozen parameters of an ECM-sketch, shared by every builder in one stream.

A sketch is a Count-Min sketch whose counters know time: ``depth`` rows with ``width`` cells each. A
cell keeps the times of ``slots`` ones per level (Papapetrou, Garofalakis and Deligiannakis,
"Sketching distributed sliding-window data streams", VLDB Journal 24, 2015, section 4). With
probability ``1 - delta`` a count is off by less than ``epsilon`` times the total in the window,
where (Lemma 3, Theorem 1)

    width >= e (1 + eps_cell) / epsilon,   depth >= ln(1 / delta),   eps_cell <= epsilon,

and a cell's error is ``1 / (2 slots)`` for waves and ``1 / (2 slots - 1)`` for exponential
histograms, both tighter than in the paper. ``for_accuracy`` searches integers.

A sketch's counters are *layers* over key prefixes. The root, one cell with 64 slots,
counts everything. The leaf is the paper's sketch. With ``key_bits`` keys are integers, and there
are prefix layers in between, ``fanout_bits`` apart, for heavy hitters, ranges and quantiles. A
layer with no more prefixes than cells is direct: it has a cell for each, without hash errors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from decaysketch.core import hashing
from decaysketch.core.observations import TIME_LIMIT, integer_column
from decaysketch.core.params import BuildParams, Option, check_integer, check_time_unit
from decaysketch.ecm import sizing
from decaysketch.ecm.levels import ROOT, Layer
from decaysketch.ecm.sizing import (
    MAX_CELLS,
    MAX_DEPTH,
    MAX_SLOTS,
    MAX_WIDTH,
    MIN_SLOTS,
    Kind,
    Query,
)
from decaysketch.errors import ObservationError, ParameterError

__all__ = [
    "MAX_ENTRIES",
    "MAX_LANES",
    "OPTIONS",
    "Clock",
    "ECMParams",
]

Clock = Literal["time", "arrivals"]
UInt64Array = npt.NDArray[np.uint64]

MAX_LANES = 64
MAX_ENTRIES = 1 << 20


@dataclass(frozen=True)
class ECMParams(BuildParams):
    """Build parameters for an :class:`~decaysketch.ecm.ECMSketch`. A stream's sources share them.

    Args:
        width: cells per row, at most 65,535. Noise falls as 1/width. Intervals improve from
            ``2 depth / (1 - confidence)`` on.
        depth: rows, at most 16, each with its own hash.
        slots: times kept per level in a cell, 2 to 16,384. ``depth * width * slots`` is at most
            2^22.
        kind: "wave" (default), deterministic waves, or "eh", exponential histograms.
        clock: "time" (default): time windows. "arrivals": windows over the last arrivals. Such
            sketches are never added or merged.
        seed: ``0 <= seed < 2^64``. It fixes the hash functions for keys and rows.
        time_unit: unit label for every timestamp and age, 1 to 8 lower-case letters.
        horizon: how far back queries may reach, in time units, up to 2^62. The bytes skip data that
            only older windows need. None: any window.
        lanes: in how many orders events may arrive interleaved, 1 to 64; see
            :mod:`decaysketch.ecm.reorder`.
        hold: events are buffered and sorted for this number of time units, and counted exactly
            meanwhile; 0 to 2^62.
        key_bits: keys are integers below ``2^key_bits``, 1 to 64, and support ranges. None:
            keys are integers, text, bytes or tuples of these, hashed to 64 bits.
        fanout_bits: by how many bits prefixes in neighbouring layers differ, 1 to 16. Wide (8) for
            heavy hitters, narrow (1 or 2) for ranges and quantiles.
        capacity: maximum entries (sources and their epochs) in a collection, up to 2^20.

    Raises:
        ParameterError: a field is outside its domain. The message names it and the value.
    """

    value_type: ClassVar[Literal["int64"]] = "int64"
    copies: ClassVar[int] = 1

    width: int  # w
    depth: int  # d
    slots: int  # q of a wave, B of an exponential histogram
    kind: Kind = "wave"
    clock: Clock = "time"
    seed: int = 0
    time_unit: str = "s"
    horizon: int | None = None
    lanes: int = 4
    hold: int = 0
    key_bits: int | None = None
    fanout_bits: int = 8
    capacity: int = 4096

    def __post_init__(self) -> None:
        check_integer("width", self.width, 1, MAX_WIDTH)
        check_integer("depth", self.depth, 1, MAX_DEPTH)
        check_integer("slots", self.slots, MIN_SLOTS, MAX_SLOTS)
        if self.width * self.depth * self.slots > MAX_CELLS:
            raise ParameterError(
                f"width * depth * slots is {self.width * self.depth * self.slots}; expected at "
                f"most 2^22 = {MAX_CELLS}"
            )
        for name, choices in (("kind", get_args(Kind)), ("clock", get_args(Clock))):
            if (value := getattr(self, name)) not in choices:
                raise ParameterError(f"{name} is {value!r}; expected one of {', '.join(choices)}")
        check_integer("seed", self.seed, 0, (1 << 64) - 1)
        check_time_unit(self.time_unit)
        if self.horizon is not None:
            check_integer("horizon", self.horizon, 0, TIME_LIMIT)
        check_integer("lanes", self.lanes, 1, MAX_LANES)
        check_integer("hold", self.hold, 0, TIME_LIMIT)
        if self.clock == "arrivals" and self.hold:
            raise ParameterError(
                f"hold is {self.hold} and clock is 'arrivals'; expected 0: arrivals are in order"
            )
        if self.key_bits is not None:
            check_integer("key_bits", self.key_bits, 1, 64)
        check_integer("fanout_bits", self.fanout_bits, 1, 16)
        check_integer("capacity", self.capacity, 1, MAX_ENTRIES)

    @classmethod
    def for_accuracy(
        cls,
        epsilon: float,
        delta: float,
        *,
        query: Query = "point",
        height: int = 0,
        keys: int = 1,
        kind: Kind = "wave",
        clock: Clock = "time",
        seed: int = 0,
        time_unit: str = "s",
        horizon: int | None = None,
        lanes: int = 4,
        hold: int = 0,
        key_bits: int | None = None,
        fanout_bits: int = 8,
        capacity: int = 4096,
    ) -> Self:
        """Return parameters for the smallest sketch with a given accuracy.

        With probability ``1 - delta`` over the choice of the hashes, the paper's estimate for a
        count is off by less than ``epsilon`` times the total under the same decay ("point", Lemma
        3), or for an inner product by less than ``epsilon`` times the product of both totals
        ("inner", Lemma 4). The default estimator is closer than that, by 2 to 24 times.

        Args:
            epsilon: accuracy, between 0 and 1.
            delta: probability of a larger error, between 0 and 1.
            query: "point" or "inner".
            height: levels of sources that compact their data and send them upstream. 0 if
                sketches are only added, which costs no accuracy.
            keys: number of keys for which ``delta`` holds at once.
            kind, clock, seed, time_unit, horizon, lanes, hold, key_bits, fanout_bits, capacity: see
                the class.

        Raises:
            ParameterError: an argument outside its domain, or no sketch within the limits is large
                enough.
        """
        size = sizing.size_for(epsilon, delta, kind=kind, query=query, height=height, keys=keys)
        return cls(
            width=size.width, depth=size.depth, slots=size.slots, kind=kind, clock=clock, seed=seed,
            time_unit=time_unit, horizon=horizon, lanes=lanes, hold=hold, key_bits=key_bits,
            fanout_bits=fanout_bits, capacity=capacity,
        )  # fmt: skip

    # --------------------------------------------------------------------------- derived: the cells

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Counter layers, root first, leaf last. Prefixes grow longer."""
        if self.key_bits is None:
            return (ROOT, Layer(0, self.width, self.depth, self.slots, hashed=True))
        highest = (self.key_bits - 1) // self.fanout_bits * self.fanout_bits
        shifts = range(highest, -1, -self.fanout_bits)
        return (ROOT, *(self._layer(shift, self.key_bits - shift) for shift in shifts))

    def _layer(self, shift: int, bits: int) -> Layer:
        """The layer for prefixes with this number of bits: direct if there are no more prefixes
        than cells.
        """
        nodes = 1 << bits
        if nodes <= min(self.width * self.depth, MAX_WIDTH):
            return Layer(shift, nodes, 1, self.slots, hashed=False)
        return Layer(shift, self.width, self.depth, self.slots, hashed=True)

    # ---------------------------------------------------------------------------- derived: the keys

    def key_word(self, index: int) -> int:
        """The ``index``-th 64-bit word of the stream that keys are hashed under."""
        return hashing.derive(self.seed, hashing.PURPOSE_KEY, index)

    def words_of(self, keys: Any) -> UInt64Array:
        """Return the 64-bit words for counting keys: with ``key_bits`` the keys themselves, else
        hashes.

        Args:
            keys: a column of integers, text or bytes (a list or an array), or a list of
                tuples of these with equal lengths, or the same as a tuple of columns. Or
                :class:`~decaysketch.core.hashing.HashedKeys`, which are used unchanged.

        Returns:
            uint64[n], the same on every platform.

        Raises:
            ObservationError: keys with another type, with several types in a column or with more
                than 1,024 bytes, columns with unequal lengths, or integers outside ``key_bits``.
        """
        if isinstance(keys, hashing.HashedKeys):
            return keys.words
        if self.key_bits is not None:
            return self._integer_words(keys)
        if isinstance(keys, tuple) and not isinstance(keys, hashing.RepeatedKeys):
            columns: Any = keys
        elif isinstance(keys, list) and keys and isinstance(keys[0], tuple):
            columns = _columns_of(keys)
        else:
            columns = [keys]
        return hashing.hash_keys(columns, self.key_word)

    def _integer_words(self, keys: Any) -> UInt64Array:
        assert self.key_bits is not None
        array = np.asarray(keys)
        if array.dtype == np.uint64 and array.ndim <= 1:
            words: UInt64Array = np.ascontiguousarray(np.atleast_1d(array))
        elif self.key_bits == 64 and isinstance(keys, list) and keys:
            words = _wide_words(keys)
        else:
            integers = integer_column("keys", keys)
            if integers.size and int(integers.min()) < 0:
                _refuse_key(int((integers < 0).argmax()), int(integers.min()), self.key_bits)
            words = integers.view(np.uint64)
        if words.size and int(words.max()) >> self.key_bits:
            row = int(words.argmax())
            _refuse_key(row, int(words[row]), self.key_bits)
        return words

    # ---------------------------------------------------------------------- identity and exchange

    @cached_property
    def fingerprint(self) -> bytes:
        """8 bytes that are equal exactly when two sketches may be combined (capacity is not
        included).
        """
        form = self.to_dict()
        del form["capacity"]
        text = "\0".join("none" if value is None else str(value) for value in form.values())
        digest = hashlib.blake2b(text.encode("ascii"), digest_size=8, person=b"ds-ecm-1")
        return digest.digest()

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_dict`.

        Raises:
            ParameterError: an unknown field, a missing one, or one outside its domain.
        """
        known = [field.name for field in fields(cls)]
        if unknown := sorted(set(form) - set(known)):
            raise ParameterError(f"unknown parameter {unknown[0]!r}; known are {sorted(known)}")
        if missing := [name for name in ("width", "depth", "slots") if name not in form]:
            raise ParameterError(f"{missing[0]} is missing")
        return cls(**form)


def _columns_of(rows: list[Any]) -> list[list[Any]]:
    """Columns for keys that are tuples with equal lengths."""
    length = len(rows[0])
    for row, key in enumerate(rows):
        if not isinstance(key, tuple) or len(key) != length or not length:
            raise ObservationError(
                f"keys[{row}] is {key!r}; expected a tuple of {max(length, 1)}, as the keys of one "
                "batch are all of one form",
                column="keys", row=row, value=key,
            )  # fmt: skip
    return [list(column) for column in zip(*rows, strict=True)]


def _wide_words(keys: list[Any]) -> UInt64Array:
    """Integers up to 2^64 - 1, some too large for int64."""
    for row, key in enumerate(keys):
        if (
            isinstance(key, bool)
            or not isinstance(key, (int, np.integer))
            or not 0 <= key < 1 << 64
        ):
            _refuse_key(row, key, 64)
    return np.array(keys, dtype=np.uint64)


def _refuse_key(row: int, key: Any, key_bits: int) -> None:
    raise ObservationError(
        f"keys[{row}] is {key!r}; expected an integer from 0 to 2^{key_bits} - 1",
        column="keys", row=row, value=key,
    )  # fmt: skip


#: Each parameter.
OPTIONS = (
    Option(name="width", type=int, doc="Cells in each row.", example=60),
    Option(name="depth", type=int, doc="Rows, each with its own hash function.", example=3),
    Option(name="slots", type=int, doc="Times that a cell stores for each level.", example=10),
    Option(
        name="kind",
        type=str,
        default="wave",
        choices=get_args(Kind),
        doc="Kind of the counters in cells.",
    ),
    Option(
        name="clock",
        type=str,
        default="time",
        choices=get_args(Clock),
        doc="Whether windows count time or arrivals.",
    ),
    Option(name="seed", type=int, default=0, doc="Seed of the hashes, up to 64 bits."),
    Option(name="time_unit", type=str, default="s", doc="Unit of times and ages."),
    Option(
        name="horizon",
        type=int,
        default=None,
        optional=True,
        doc="Maximum age that queries reach. Null: any.",
    ),
    Option(
        name="lanes",
        type=int,
        default=4,
        doc="Ordered sequences of events that may arrive interleaved.",
    ),
    Option(
        name="hold",
        type=int,
        default=0,
        doc="Time for which events are buffered, so that late ones are sorted.",
    ),
    Option(
        name="key_bits",
        type=int,
        default=None,
        optional=True,
        doc="Bits of integer keys. Null: keys of any kind.",
    ),
    Option(name="fanout_bits", type=int, default=8, doc="Key bits between two prefix layers."),
    Option(
        name="capacity", type=int, default=4096, doc="Maximum number of entries in a collection."
    ),
)
