"""Decay functions ``g(age)``: the share of its weight that an observation keeps as it ages.

You choose a decay when you query, never when you build a sketch. The decayed weight of an
observation with weight ``w`` at age ``x`` is ``w g(x)`` (decomposable decay, Cormode, Tirthapura
and Xu, definition 1.3): ``g`` is non-negative, finite and non-increasing in the age. Ages are
``now - timestamp``, in the stream's time unit. They are computed at query time. No forward form is
stored, so nothing can overflow, however old a stream is.

========================================  ======================================================
``window(width)``                         1 up to an age of ``width``, inclusive, then 0
``exponential(rate=)``, ``(half_life=)``  ``exp(-rate x)``, ``2^(-x / half_life)``
``polynomial(exponent, scale=1)``         ``(1 + x / scale)^-exponent``
``none()``                                1 at every age
``piecewise(steps, beyond=0)``            the weight of the first step whose age is not exceeded
``expression(text)``                      a formula, ``"1/(1 + log(1 + x/60))"``
========================================  ======================================================

Decays are values: frozen, hashable, comparable, and JSON-ready by :meth:`Decay.to_dict` and
:func:`from_dict`. ``str`` of a decay is a text that :func:`parse` reads.
:mod:`decaysketch.decay.read` lists the other spellings, with units such as ``window(1h)``. To
define another decay, subclass :class:`Decay`.

:mod:`decaysketch.decay.terms` defines the syntax of expressions and the limits that make them safe
to read. :mod:`decaysketch.decay.symbolic` describes how an expression is checked to be a decay.
Decays that are fixed when a sketch is built, and may depend on the weight in other ways, are in
:mod:`decaysketch.decay.integral`.
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
