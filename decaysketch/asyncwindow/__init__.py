"""Sums, counts and quantiles over any recent window of an asynchronous stream.

Random samples by level, as in Xu, Tirthapura and Busch, "Sketching asynchronous data streams over
sliding windows": elements arrive in any order, you choose the window when you query, and samplers
of several streams merge without loss. ``docs/which-sketch.md`` says when to use these and when a
:class:`~decaysketch.DecaySketch`.

    >>> import decaysketch as ds
    >>> from decaysketch.asyncwindow import SumParams, SumSampler
    >>> sampler = SumSampler(SumParams(max_sum=10**6, capacity=1000, max_window=3600))
    >>> sampler.update([3, 4, 5], [100, 90, 120])
    >>> sampler.sum(ds.decay.window(25), now=120).value
    8.0
"""

from decaysketch.asyncwindow.coins import element_keys
from decaysketch.asyncwindow.params import AsyncParams, MedianParams, SumParams
from decaysketch.asyncwindow.sketch import MedianSampler, SumSampler, WindowStats
from decaysketch.asyncwindow.state import WindowState

__all__ = [
    "AsyncParams",
    "MedianParams",
    "MedianSampler",
    "SumParams",
    "SumSampler",
    "WindowState",
    "WindowStats",
    "element_keys",
]
