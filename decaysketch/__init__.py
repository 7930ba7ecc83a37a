"""Duplicate-insensitive, time-decayed aggregation of asynchronous observations.

    >>> import decaysketch as ds
    >>> params = ds.SketchParams(max_weight=1, id_bits=40, seed=7)
    >>> sketch = ds.DecaySketch(params)
    >>> sketch.update([20.5, 21.0, 20.5], 1, [100, 160, 100], [1, 2, 1])
    >>> sketch.mean(ds.decay.exponential(half_life=60), now=160).value > 20.8
    True

Start at :class:`DecaySketch`. Create decays with :mod:`decaysketch.decay`. Merge sketches by their
method or by :func:`merge`, and read them from bytes by :func:`decode`. Names that are not in
``__all__`` (states, hashing, ``minhit``, ``wire``) serve studies of the state.
"""

from typing import TYPE_CHECKING

try:
    from decaysketch.core import _native as _native
except ImportError as missing:
    raise ImportError(
        f"the kernels of decaysketch are not in {__path__[0]} ({missing}). Python in a checkout "
        "imports the checkout instead of the installed package: build the kernels with pip "
        "install -e . (or make setup)"
    ) from missing

from decaysketch import asyncwindow, decay, families
from decaysketch import minhit as minhit
from decaysketch.contract.snapshot import Snapshot
from decaysketch.core import hashing as hashing
from decaysketch.core.observations import observation_ids, scale_weights
from decaysketch.core.params import SketchParams
from decaysketch.core.time_units import duration, instant
from decaysketch.decay import Decay
from decaysketch.errors import (
    CorruptSketchError,
    DecaySketchError,
    DisagreeingCopiesWarning,
    FewSeriesWarning,
    IncompatibleSketchError,
    NewestOnlyWarning,
    ObservationError,
    ParameterError,
    TimeUnitWarning,
    TimeZoneWarning,
    UnanswerableQueryError,
    UnlikelyClockWarning,
)
from decaysketch.families import decode, merge
from decaysketch.integral.sketch import IntegralDecaySketch, IntegralStats
from decaysketch.integral.state import IntegralState as IntegralState
from decaysketch.query.estimate import Estimate
from decaysketch.query.sample import Sample
from decaysketch.query.tables import GroupTable
from decaysketch.querytime import wire as wire
from decaysketch.querytime.devices import Device, Devices
from decaysketch.querytime.sketch import DecaySketch, SketchStats
from decaysketch.querytime.state import SketchState as SketchState
from decaysketch.querytime.upgrading import upgrade

if TYPE_CHECKING:
    from decaysketch.sources import CoverageView, SourceSet

__all__ = [
    "CorruptSketchError",
    "CoverageView",
    "Decay",
    "DecaySketch",
    "DecaySketchError",
    "Device",
    "Devices",
    "DisagreeingCopiesWarning",
    "Estimate",
    "FewSeriesWarning",
    "GroupTable",
    "IncompatibleSketchError",
    "IntegralDecaySketch",
    "IntegralStats",
    "NewestOnlyWarning",
    "ObservationError",
    "ParameterError",
    "Sample",
    "SketchParams",
    "SketchStats",
    "Snapshot",
    "SourceSet",
    "TimeUnitWarning",
    "TimeZoneWarning",
    "UnanswerableQueryError",
    "UnlikelyClockWarning",
    "asyncwindow",
    "decay",
    "decode",
    "duration",
    "families",
    "instant",
    "merge",
    "observation_ids",
    "scale_weights",
    "upgrade",
]

__version__ = "0.2.0"


if not TYPE_CHECKING:  # else every name would be known

    def __getattr__(name: str) -> object:
        """Import set algebra when a program needs it."""
        if name in ("CoverageView", "SourceSet"):
            from decaysketch import sources

            return getattr(sources, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
