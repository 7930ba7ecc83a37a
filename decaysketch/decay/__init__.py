"""Decay functions ``g(age)``: how much of its weight an observation keeps as it ages.

A decay is chosen when a query is asked, never when a sketch is built. The decayed weight of an
observation of weight ``w`` at age ``x`` is ``w g(x)`` (decomposable decay, Cormode, Tirthapura and
Xu, definition 1.3): ``g`` is non-negative, finite and non-increasing in the age. Ages are
``now - timestamp``, in the stream's time unit. They are taken at query time: no forward form is
kept, so nothing can overflow, however old a stream is.

========================================  ======================================================
``window(width)``                         1 up to an age of ``width``, inclusive, then 0
``exponential(rate=)``, ``(half_life=)``  ``exp(-rate x)``, ``2^(-x / half_life)``
``polynomial(exponent, scale=1)``         ``(1 + x / scale)^-exponent``
``none()``                                1 at every age
``piecewise(steps, beyond=0)``            the weight of the first step whose age is not exceeded
``expression(text)``                      what a text says, ``"1/(1 + log(1 + x/60))"``
========================================  ======================================================

Decays are values: frozen, hashable, comparable, and JSON-ready by :meth:`Decay.to_dict` and
:func:`from_dict`. ``str`` of one is a text that :func:`parse` reads; how else a decay is spelled,
with units such as ``window(1h)``: :mod:`decaysketch.decay.read`. Another decay is a subclass of
:class:`Decay`.

What a text may say, and how it is kept from doing harm: :mod:`decaysketch.decay.terms`. How it is
checked to be a decay: :mod:`decaysketch.decay.symbolic`. Decays that are fixed when a sketch is
built, and may depend on the weight in other ways, are in :mod:`decaysketch.decay.integral`.
"""

from decaysketch.decay import integral
from decaysketch.decay.functions import (
    Decay,
    Exponential,
    NoDecay,
    Piecewise,
    Polynomial,
    Window,
    exponential,
    none,
    piecewise,
    polynomial,
    window,
)
from decaysketch.decay.read import from_dict, parse
from decaysketch.decay.symbolic import Expression, expression

__all__ = [
    "Decay",
    "Exponential",
    "Expression",
    "NoDecay",
    "Piecewise",
    "Polynomial",
    "Window",
    "exponential",
    "expression",
    "from_dict",
    "integral",
    "none",
    "parse",
    "piecewise",
    "polynomial",
    "window",
]
