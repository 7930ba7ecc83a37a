"""Family 2: the sketch for one integral decay, fixed when it is built.

The shared header is followed by the decay, the clock and the watermarks, then by the rows and the
labels, packed as in family 1. Events and expiries are not stored but computed again. The digest of
its step table identifies the decay. If parameters are carried in full, the decay's JSON form
follows. It contains tables only by their own digest, so a reader needs them.

Guarantees of decoding
    As in family 1: any bytes give a state that an honest builder could have
    reached, or one :class:`~decaysketch.errors.CorruptSketchError`, in time and memory proportional
    to their length. The step table of a decay that they name comes on top (at most 2^20 steps,
    rejected before any is computed). A reader that knows the decay passes it, and then no other is
    computed.

    * *Canonical.* Decay and rows are encoded again and must give the same bytes.
    * *Lawful.* The state is built again from its rows, watermarks and clock. No row may be
      missing then, and no watermark rise.
    * *Plausible.* A watermark ``t_i`` after the clock claims that more than the capacity of
      observations in ``T_i`` expire at ``t_i`` or later. If ``c`` of them are there and expire
      later, ``capacity + 1 - c`` or more expire exactly at ``t_i``. Their first hit at level ``i``
      is one at level ``i + 1`` with a chance of about 1/2, and then they expire at ``t_i`` there
      too: if ``t_{i+1} < t_i`` these were kept. If so few of them are there that the chance is
      below 1e-9, the bytes are rejected. Likewise a watermark after the clock at the coarsest
      level, which few ids reach.

The sender sets the clock. Code that accepts bytes from others must reject clocks that are ahead
(:func:`peek`): with an accepted clock a sketch drops everything that has expired by it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from decaysketch.core.codec import reading, writing
from decaysketch.core.codec.reading import CopyHeader, Header, Rows, refuse
from decaysketch.core.codec.sections import codes_of_ranks, read_labels, read_rows
from decaysketch.core.codec.writing import encode_labels, encode_rows, ranks_of
from decaysketch.core.observations import TIME_LIMIT
from decaysketch.core.params import SketchParams
from decaysketch.core.special import binomial_at_most
from decaysketch.decay import integral
from decaysketch.decay.integral import MAX_AGE, IntegralDecay
from decaysketch.errors import CorruptSketchError, IncompatibleSketchError, ParameterError
from decaysketch.integral.rows import IntegralRows
from decaysketch.integral.state import NO_CLOCK, IntegralState, spec_of
from decaysketch.minhit._top_level import observations_of_top_level

__all__ = ["FAMILY", "DecayHeader", "decode", "encode", "peek"]

FAMILY = 2

_DIGEST_BYTES = 16
_LONGEST_SPEC = 4096
_LATEST_EXPIRY = TIME_LIMIT + MAX_AGE
_IMPLAUSIBLE = 1e-9
_MOST_NAMED_STEPS = 1 << 16  # of a decay that a reader did not name: 2 seconds to compute
_WEIGHTS_OF_AN_ID = 32  # more of them at the coarsest level are not believed


@dataclass(frozen=True, slots=True, kw_only=True)
class DecayHeader(Header):
    """The result of :func:`peek`: the common header fields, and the decay.

    Attributes:
        decay_digest: 16 bytes, the digest of the decay's step table at ``max_weight``.
        decay: the decay's ``to_dict()`` as JSON. Empty without parameters.
    """

    decay_digest: bytes
    decay: bytes


# --------------------------------------------------------------------------------------- encoding


def encode(state: IntegralState, *, embed_params: bool = True) -> bytes:
    """Return the bytes of a state. Equal states have equal bytes.

    Args:
        state: any state. A secret id key is represented by its check value only.
        embed_params: whether to carry parameters and decay in full. Without them the reader needs
            both: see :func:`decode`.

    Returns:
        Version 1 bytes. O(rows), about 10 ns a row.
    """
    params = state.params
    body = writing.begin(FAMILY, params, embed_params=embed_params)
    body += state.decay.steps(params.max_weight).digest
    spec = spec_of(state.decay) if embed_params else b""
    writing.put_varint(body, len(spec))
    body += spec
    writing.put_clock(body, state.clock)
    writing.put_watermarks(body, state.watermarks[state.watermarks > state.clock].tolist())
    writing.put_rows(body, state.times)
    rows = _rows_of(state)
    if state.labels is None:
        return writing.seal(body, encode_rows(rows, params.value_type))
    rows = rows._replace(value_keys=ranks_of(state.labels, rows.value_keys))
    return writing.seal(body, encode_rows(rows, params.value_type), encode_labels(state.labels))


def _rows_of(state: IntegralState) -> Rows:
    return Rows(state.times, state.ids, state.weights, state.value_keys)


# --------------------------------------------------------------------------------------- decoding


def peek(blob: bytes | bytearray | memoryview) -> DecayHeader:
    """Read the header and verify the checksum, without decoding rows or computing a decay.

    Raises:
        CorruptSketchError: see :func:`decode`.
        TypeError: not bytes at all.
    """
    blob = reading.as_bytes(blob)
    header = _read_header(reading.open_blob(blob, FAMILY))
    (copy,) = header.copies
    reading.check_row_count(copy.rows, header.capacity, len(copy.watermarks) + 1, blob)
    return header


def _read_header(opening: reading.Opening) -> DecayHeader:
    reader = opening.reader
    if opening.copies != 1:
        refuse(f"number of copies is {opening.copies}; expected 1, for an integral decay")
    digest = reader.take(_DIGEST_BYTES, "digest of the decay")
    length = reader.varint("length of the decay")
    if length > _LONGEST_SPEC:
        refuse(f"length of the decay is {length}; expected at most {_LONGEST_SPEC}")
    if (length > 0) != (opening.params is not None):
        said = "carried" if opening.params is not None else "not carried"
        refuse(f"length of the decay is {length}, yet parameters are {said}")
    decay = reader.take(length, "decay")
    clock = reader.clock()
    least = 1 - TIME_LIMIT if clock is None else clock + 1

    def check_expiry(mark: int, field: str) -> None:
        """Watermarks are expiries: later than a timestamp may be, and later than the clock."""
        if not least <= mark <= _LATEST_EXPIRY:
            refuse(f"{field} is {mark}; expected {least} to {_LATEST_EXPIRY}")

    copy = CopyHeader(reading.read_watermarks(reader, check_expiry), *reader.rows())
    return DecayHeader.behind(opening, [copy], clock=clock, decay_digest=digest, decay=decay)


def decode(
    blob: bytes | bytearray | memoryview,
    *,
    params: SketchParams | None = None,
    decay: IntegralDecay | None = None,
    id_key: bytes | None = None,
    check_plausible: bool = True,
) -> IntegralState:
    """Return the state that :func:`encode` wrote.

    Args:
        blob: the bytes. Nothing in them is trusted.
        params: the expected parameters. Required if the bytes carry a fingerprint only.
            The capacity is taken from the bytes, not from here.
        decay: the stream's decay. Required if the bytes identify it by its digest only, as they
            do a table. Otherwise the decay that they name is computed.
        id_key: the stream's secret, if it has one. ``params`` carry it as well, so one of the two
            is enough.
        check_plausible: False skips the statistical test of the watermarks (see the module
            docstring) for bytes that this program wrote itself.

    Returns:
        The state. Encoding it again gives the same bytes (without optional sections, which this
        release skips). O(rows log max_weight).

    Raises:
        CorruptSketchError: the bytes are not ones that an honest builder could have written.
        IncompatibleSketchError: the bytes have other parameters than ``params``, or
            another ``decay``, or another ``id_key``, or need one of them and it is missing.
        ParameterError: both ``params`` and ``id_key`` given, or an ``id_key`` with a wrong length.
    """
    blob = reading.as_bytes(blob)
    opening = reading.open_blob(blob, FAMILY)
    header = _read_header(opening)
    ours = params is not None and decay is not None
    params = reading.params_of(opening, params, id_key)
    (copy,) = header.copies
    copy.check(params.capacity, params.levels + 1)
    decay = _decay_of(header, params, decay, known=ours)
    rows, end = read_rows(params, blob, header.columns_at, copy.rows, copy.newest)
    value_keys, labels = rows.value_keys, None
    if params.value_type == "label":
        labels, end = read_labels(blob, end, [value_keys], params.id_key)
        value_keys = codes_of_ranks(labels, value_keys)
    reading.skip_optional_sections(blob, header.optional_flags, end)
    clock = NO_CLOCK if header.clock is None else header.clock
    watermarks = np.full(params.levels + 1, clock, dtype=np.int64)
    watermarks[: len(copy.watermarks)] = copy.watermarks
    state = IntegralState(
        params, decay, clock, value_keys, rows.weights, rows.times, rows.ids, watermarks, labels
    )
    _check_law(state, check_plausible=check_plausible and params.id_mix == "keyed")
    return state


def _decay_of(
    header: DecayHeader, params: SketchParams, ours: IntegralDecay | None, *, known: bool
) -> IntegralDecay:
    """Return the decay in the bytes, after checking that its step table has the digest in the
    bytes.

    ``known``: the reader gave parameters and decay, so the decay to compute is the reader's own
    choice.
    """
    named = header.decay.decode("ascii", "replace")
    if ours is not None:
        if header.decay and header.decay != spec_of(ours):
            raise IncompatibleSketchError({"decay": (spec_of(ours).decode("ascii"), named)})
        if not known:
            _check_steps(ours, params)
        digest = ours.steps(params.max_weight).digest
        if digest != header.decay_digest:
            found = (f"digest {digest.hex()}", f"digest {header.decay_digest.hex()}")
            if header.decay:
                refuse(f"decay has {found[1]}; the decay beside it has {found[0]}")
            raise IncompatibleSketchError({"decay": found})
        return ours
    needed = {"decay": ("not given", f"needed, with digest {header.decay_digest.hex()}")}
    if not header.decay:
        raise IncompatibleSketchError(needed)
    try:
        said = json.loads(header.decay)
    except (ValueError, RecursionError):
        refuse(f"decay is {named!r}; expected JSON")
    if not isinstance(said, dict):
        refuse(f"decay is {named!r}; expected a JSON object")
    # Tables are named by their digest; reading the values of a text may take minutes.
    if said.get("kind") in ("expression", "fractions", "table"):
        raise IncompatibleSketchError(needed)
    try:
        decay = integral.from_dict(said)
        if spec_of(decay) != header.decay:
            refuse(f"decay is {named!r}; expected it as {spec_of(decay).decode('ascii')!r}")
        _check_steps(decay, params)
        digest = decay.steps(params.max_weight).digest
    except ParameterError as fault:
        raise CorruptSketchError(f"decay: {fault}") from None
    if digest != header.decay_digest:
        refuse(f"decay has digest {digest.hex()}; the bytes say {header.decay_digest.hex()}")
    return decay


def _check_steps(decay: IntegralDecay, params: SketchParams) -> None:
    """Reject a long step table that only the bytes request, before computing it."""
    bound = decay.step_bound(params.max_weight)
    if bound > _MOST_NAMED_STEPS:
        raise IncompatibleSketchError(
            {"decay": ("params and decay not both given",
                       f"needed: up to {bound} steps at max_weight {params.max_weight}")}
        )  # fmt: skip


def _check_law(state: IntegralState, *, check_plausible: bool) -> None:
    """Check the law of the state (see :mod:`decaysketch.integral.state`), as far as rows can
    show it.
    """
    params, watermarks = state.params, state.watermarks
    capacity, top = params.capacity, params.levels
    bag = IntegralRows.from_state(state)
    if expired := len(state) - bag.gathered:
        refuse(
            f"{expired} of {len(state)} rows expire at every level by its watermark; expected none"
        )
    later, tied = bag.held_by_level()
    # Building it may have compacted, which raises a watermark where there is more than that.
    over = np.flatnonzero((later > capacity) | (bag.watermarks != watermarks))
    if len(over):
        level = int(over[0])
        refuse(
            f"more than {capacity} rows, the capacity, expire at level {level} later than its "
            f"watermark {int(watermarks[level])}"
        )
    if watermarks[top] > state.clock:
        weights = _WEIGHTS_OF_AN_ID if check_plausible else params.max_weight
        most = observations_of_top_level(params, 0, weights)
        if most <= capacity:
            refuse(
                f"level {top} has watermark {int(watermarks[top])}, yet at most {most} "
                f"observations reach it; expected none at capacity {capacity}"
            )
    if check_plausible:
        claims = np.flatnonzero(
            (watermarks[:-1] > watermarks[1:]) & (tied <= capacity - later)[:-1]
        )
        for level in claims.tolist():
            overflowing = capacity + 1 - int(later[level])
            _check_plausible(state, level, overflowing, int(tied[level]))


def _check_plausible(state: IntegralState, level: int, overflowing: int, tied: int) -> None:
    """Reject a watermark that claims too many observations that are not there; see the module."""
    prime = state.params.prime
    chance = binomial_at_most(tied, overflowing, (prime >> level + 1) / (prime >> level))
    if chance < _IMPLAUSIBLE:
        refuse(
            f"watermark {int(state.watermarks[level])} of level {level} claims that {overflowing} "
            f"observations or more expire at that time, yet {tied} do at level {level + 1}: a "
            f"chance of {chance:.1e}; expected at least {_IMPLAUSIBLE:.0e}"
        )
