"""Exact arithmetic under the integral decays: enclosures of e^-y and ln m, and Farey neighbours.

``floor(w g)`` is discontinuous, so no fixed floating-point precision computes it, and the last
digits of a library's ``exp`` or ``pow`` differ between platforms. Here two integers
``(low, high)`` represent a real number in ``[low / 2^bits, high / 2^bits]``. Every step rounds
outwards, by a stated amount. A caller that finds both sides of a decision inside an enclosure
repeats with more bits.

The number of weights is bounded, so ``g`` itself is never needed: for all ``w <= order``,

    floor(w g) = floor(w P / Q),  P / Q the largest fraction <= g of denominator <= order,

because ``floor(w g) / w`` is such a fraction. The fractions with denominator at most ``order`` are
the Farey sequence of that order. A descent in the Stern-Brocot tree finds ``P / Q``, many levels at
a time as in Euclid's algorithm.
"""

from __future__ import annotations

import math
from functools import lru_cache

__all__ = ["exp_of_negative", "farey_floor", "log_of_integer", "log_of_two", "root"]

Enclosure = tuple[int, int]

_GUARD_BITS = 24
_TABLE_BITS = 7  # logarithms of 2^7 .. 2^8 - 1 are tabulated


def farey_floor(numerator: int, denominator: int, order: int) -> tuple[int, int, int, int]:
    """Return the neighbours of a number in [0, 1) in the Farey sequence of an order.

    Returns:
        ``(P, Q, R, S)``: ``P / Q <= numerator / denominator < R / S`` are neighbours in it.
        O(log order) steps.
    """
    p, q, r, s = 0, 1, 1, 1
    below = numerator  # numerator q - denominator p, >= 0
    above = denominator - numerator  # denominator r - numerator s, > 0
    while q + s <= order:
        k = min(below // above, (order - q) // s)
        p, q, below = p + k * r, q + k * s, below - k * above
        room = (order - s) // q
        if room <= 0:
            continue
        k = min((above - 1) // below, room) if below else room
        r, s, above = r + k * p, s + k * q, above - k * below
    return p, q, r, s


def exp_of_negative(low: int, high: int, bits: int) -> Enclosure:
    """Enclose e^-y for y in the enclosure (low, high), y >= 0."""
    return _exp(high, bits)[0], _exp(low, bits)[1]


def _exp(y: int, bits: int) -> Enclosure:
    """Enclose exp(-y / 2^bits), y >= 0."""
    if y >> bits >= bits:  # e^-bits < 2^-bits
        return 0, 1
    halvings = max(0, y.bit_length() - bits) + 5  # the argument falls below 2^-5
    wide = bits + halvings + _GUARD_BITS
    t = y << (wide - bits) >> halvings  # off by less than 1 unit
    total = term = 1 << wide
    count = 0
    while term:
        count += 1
        term = (term * t >> wide) // count
        total += -term if count & 1 else term
    # A term is off by less than 3 units: 1/32 of the error before it, 1 of t and 1 of each floor.
    # The terms left out are less than a unit together.
    error = 3 * count + 2
    low, high = total - error, total + error
    for _ in range(halvings):
        low, high = low * low >> wide, (high * high >> wide) + 1
    return low >> (wide - bits), (high >> (wide - bits)) + 1


@lru_cache(maxsize=16)
def log_of_two(bits: int) -> Enclosure:
    """Enclose ln 2 = sum over k of 2^-k / k."""
    total = sum((1 << (bits - k)) // k for k in range(1, bits + 1))
    return total, total + bits + 2  # a floor each, and a tail of less than a unit


def _twice_atanh(numerator: int, denominator: int, bits: int) -> Enclosure:
    """Enclose 2 atanh(n / d) = ln((d + n) / (d - n)) for 0 <= n / d < 1/128."""
    u = (numerator << bits) // denominator
    square = u * u >> bits
    total, odd, power = 0, 1, u
    while power:
        total += power // odd
        power = power * square >> bits
        odd += 2
    return 2 * total, 2 * (total + odd + 4)  # each term is low by less than 2 units


@lru_cache(maxsize=16)
def _table_of_logs(bits: int) -> list[Enclosure]:
    """Enclose ln c for c = 2^7 .. 2^8 - 1."""
    first = 1 << _TABLE_BITS
    low, high = (_TABLE_BITS * end for end in log_of_two(bits))
    table = [(low, high)]
    for c in range(first, 2 * first - 1):
        step_low, step_high = _twice_atanh(1, 2 * c + 1, bits)
        low, high = low + step_low, high + step_high
        table.append((low, high))
    return table


def log_of_integer(m: int, bits: int) -> Enclosure:
    """Enclose ln m for an integer m >= 1."""
    wide = bits + _GUARD_BITS
    shift = m.bit_length() - 1 - _TABLE_BITS  # m = c 2^shift (1 + less than 2^-7)
    two_low, two_high = log_of_two(wide)
    if shift <= 0:
        c, rest = m << -shift, (0, 0)
    else:
        c = m >> shift
        rest = _twice_atanh(m - (c << shift), m + (c << shift), wide)
    low, high = _table_of_logs(wide)[c - (1 << _TABLE_BITS)]
    low, high = low + rest[0], high + rest[1]
    if shift >= 0:
        low, high = low + shift * two_low, high + shift * two_high
    else:
        low, high = low + shift * two_high, high + shift * two_low
    return max(low >> _GUARD_BITS, 0), (high >> _GUARD_BITS) + 1


def root(m: int, degree: int) -> int | None:
    """The integer with the ``degree``-th power m >= 0, or None."""
    if degree == 1 or m <= 1:
        return m
    if degree >= m.bit_length():
        return None
    low, high = 1, 1 << -(-m.bit_length() // degree)  # low^degree <= m < high^degree
    if degree == 2:
        low = math.isqrt(m)
        high = low + 1
    while high - low > 1:
        middle = (low + high) // 2
        if middle**degree <= m:
            low = middle
        else:
            high = middle
    return low if low**degree == m else None
