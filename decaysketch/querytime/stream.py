"""The family's number on the wire, and a stream as the kernels for its bytes know it."""

from __future__ import annotations

from decaysketch import minhit
from decaysketch.core.params import SketchParams
from decaysketch.querytime import _wire_native as _native

__all__ = ["FAMILY", "stream_of"]

FAMILY = 1  # decay chosen at query time


def stream_of(params: SketchParams, copy: int = 0, *, plausible: bool = True) -> _native.Stream:
    """Return the sketch parameters that the kernels need to check it."""
    return _native.Stream(
        minhit.plan(params, copy).native, max_weight=params.max_weight, capacity=params.capacity,
        floats=params.value_type == "float64", plausible=plausible,
    )  # fmt: skip
