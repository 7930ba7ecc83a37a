"""Decay functions ``g(age)``: how much of its weight an observation keeps as it ages.

A decay is chosen when a query is asked, never when a sketch is built. The decayed weight of an
observation of weight ``w`` at age ``x`` is ``w g(x)`` (decomposable decay, Cormode, Tirthapura and
Xu, definition 1.3): ``g`` is non-negative, finite and non-increasing in the age. Ages are
``now - timestamp``, in the stream's time unit. They are taken at query time: no forward form is
kept, so nothing can overflow, however old a stream is.

=======================================  ====================================================
``window(width)``                        1 up to an age of ``width``, inclusive, then 0
``exponential(rate=)``, ``(half_life=)``  ``exp(-rate x)``, ``2^(-x / half_life)``
``polynomial(exponent, scale=1)``        ``(1 + x / scale)^-exponent``
``none()``                               1 at every age
``piecewise(steps, beyond=0)``           the weight of the first step whose age is not exceeded
=======================================  ====================================================

Decays are values: frozen, hashable, comparable, and JSON-ready by :meth:`Decay.to_dict` and
:func:`from_dict`. Another decay is a subclass of :class:`Decay`.
"""

from decaysketch.decay.functions import (
    Decay,
    Exponential,
    NoDecay,
    Piecewise,
    Polynomial,
    Window,
    exponential,
    from_dict,
    none,
    piecewise,
    polynomial,
    window,
)

__all__ = [
    "Decay",
    "Exponential",
    "NoDecay",
    "Piecewise",
    "Polynomial",
    "Window",
    "exponential",
    "from_dict",
    "none",
    "piecewise",
    "polynomial",
    "window",
]
