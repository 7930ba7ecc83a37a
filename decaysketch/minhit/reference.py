"""First hit, number of hits and sampling levels of an observation, in plain Python integers.

The idea. An observation with weight w represents the w integers max_weight * id + j, 0 <= j < w.
The hash of a range of consecutive integers is an arithmetic progression modulo a prime:

    h(max_weight * id + j) = (u + j*a) mod p,  0 <= j <= n,  u = h(max_weight * id),  n = w - 1,

and level i selects the integers whose hash is at most L = floor(p / 2^i) - 1, which is exactly
floor(p / 2^i) of the p possible hashes. So "is the observation sampled at level i, and how often"
is a question about a progression modulo p. Euclid's algorithm solves it in O(log p) steps, while
checking every integer in the range would take w.

Convention, everywhere in this package: **hit <=> (u + j*a) mod p <= L, with 0 <= j <= n and
L = floor(p / 2^i) - 1**. A limit L < 0 (a level with 2^i > p) selects nothing.

Sources. Cormode, Tirthapura, Xu, *Time-decaying sketches for robust aggregation of sensor data*:
section 3.2 (hash and levels), section 3.3 (Lemma 3.5, Algorithm 4, Problem 1, Observation 3.2,
Lemmas 3.6 to 3.9, Algorithm 5). Departures:

* Algorithm 5 leaves the length of S_0, k, f_1 and f_(d+1) unstated. `min_hit` defines them.
* Algorithm 5 requires L >= 0 and would report hits for L < 0. Here L < 0 has none.
* Section 3.3 also prints the hit test as h <= floor(p / 2^i). That selects one integer too many:
  only "- 1" gives level i the probability p_i = floor(p / 2^i) / p.
* RangeSample is a floor-sum, the textbook form, and not the recursion that the paper cites.
* Algorithm 4 is printed to return t + t' with t' = l, the last age at which the observation is
  still selected. `expiry_time` returns t + r. The algorithm is printed for decays w * f(x) and
  calls MinHit with n = w * f(0) - 1. Here n = f(w, 0) - 1, and an f(w, 0) of 0 represents no
  integers at all.
* `all_levels` reads the first hit for every level off one walk over the record minima of the
  progression, where the paper calls Algorithm 5 once per level.

Enumeration checks this module on small primes, and it checks the compiled kernels at full size. It
therefore imports no project code, and nothing falls back to it. Every function takes 0 <= a < p,
0 <= u < p and n >= 0 and does not check them. The modulus need not be prime, and integers may have
any size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

__all__ = [
    "RecordRun",
    "all_levels",
    "expiry_time",
    "floor_sum",
    "hash_start",
    "level_limit",
    "min_hit",
    "min_value",
    "range_sample",
    "record_runs",
    "top_level",
]


def level_limit(p: int, level: int) -> int:
    """Largest hash selected at a level: L = floor(p / 2^i) - 1 (section 3.2), or -1 once 2^i >
    p.
    """
    return (p >> level) - 1


def hash_start(p: int, a: int, b: int, max_weight: int, id: int) -> int:
    """Hash of the first integer in an observation's range: u = (a * w_max * id + b) mod p.

    ``id`` is the id that defines the range, after any mixing.
    """
    return (a * max_weight * id + b) % p


def min_hit(p: int, a: int, u: int, n: int, L: int) -> int:
    """Smallest j in 0..n with (u + j*a) mod p <= L, or -1: Algorithm 5, MinHit(p, a, u, n, L).

    With ``L = level_limit(p, i)`` this is the paper's Delta for the observation at level i.
    O(log n) steps. Each at least halves the length of the progression (Lemma 3.9).
    """
    if L < 0:  # Problem 1 has L >= 0; without this, line 6 would answer p - u
        return -1
    if p <= L or u <= L:  # line 1
        return 0
    if a == 0:  # line 2
        return -1
    # S splits into ascending runs S_0 S_1 .. S_k, a new one wherever the sum passes p. Only the
    # first element of a run can be the first hit (Lemma 3.6).
    first_run = min(n + 1, -((u - p) // a))  # |S_0| = min(n + 1, ceil((p - u) / a))
    if first_run == n + 1:  # line 5
        return -1
    if a == 1:  # line 6
        return p - u
    r = p % a
    runs = (u + n * a) // p  # k
    f1 = u + first_run * a - p  # first element of S_1
    # The firsts f_1 .. f_k are themselves a progression modulo a, with difference a - r
    # (Observation 3.2). Walk it with a - r or, mirrored, with r, whichever is smaller.
    if 2 * (a - r) <= a:
        d = min_hit(a, a - r, f1, runs - 1, L)  # line 9
    else:
        d = min_hit(a, r, (a - f1 + L) % a, runs - 1, L)  # line 10, Lemma 3.8
    if d == -1:
        return -1
    f_hit = (f1 + d * (a - r)) % a  # f_(d+1): in f_1's own orientation, whichever line ran
    return ((d + 1) * p - u + f_hit) // a  # Lemma 3.7; the division is exact


def floor_sum(count: int, modulus: int, slope: int, offset: int) -> int:
    """Sum of floor((slope * j + offset) / modulus) over 0 <= j < count.

    ``modulus`` > 0, the other arguments >= 0. O(log modulus) steps: remove the integer multiples,
    then count the lattice points that remain under the line along its other axis.
    """
    total = 0
    while count > 0:
        whole, slope = divmod(slope, modulus)
        total += whole * (count * (count - 1) // 2)
        whole, offset = divmod(offset, modulus)
        total += whole * count
        count, offset = divmod(slope * count + offset, modulus)
        modulus, slope = slope, modulus
    return total


def range_sample(p: int, a: int, u: int, n: int, L: int) -> int:
    """How many j in 0..n have (u + j*a) mod p <= L: the paper's RangeSample. O(log p)."""
    if L < 0:
        return 0
    if p <= L + 1:
        return n + 1
    # [x mod p <= L] = 1 + floor(x / p) - floor((x + p - 1 - L) / p)
    below = floor_sum(n + 1, p, a, u)
    above = floor_sum(n + 1, p, a, u + p - 1 - L)
    return n + 1 + below - above


class RecordRun(NamedTuple):
    """Record minima that lie in arithmetic progression.

    The records are the values ``value - i * drop`` at positions ``start + i * step``, for
    i = 1 .. repeats. (``value`` at ``start`` itself is the record before the run.)
    """

    start: int
    value: int
    step: int
    drop: int
    repeats: int


def record_runs(p: int, a: int, u: int, n: int) -> Iterator[RecordRun]:
    """Every record minimum of (u + j*a) mod p after the one at j = 0, in order, as O(log p) runs.

    A record at j + s follows the one at j iff s is the first step that lowers the value without
    wrapping: drop(s) = (-s * a) mod p, 0 < drop(s) <= value. The steps that can ever be first are
    the record minima of drop(s) over s = 1, 2, ..: the best approximations to a / p from one side.
    Euclid's algorithm on (p, a) produces them in progressions ``down - k * up``, while on the other
    side ``up`` = (s * a) mod p, the smallest rise so far, shrinks by multiples of ``down``.
    A run is one such step, repeated. A progression contributes at most two.
    """
    if a == 0:
        return
    value, start = u, 0
    down, down_step = p, 0
    up, up_step = a, 1
    while down != up and down_step + up_step <= n - start:  # equal: both are gcd(p, a), the last
        last = (down - 1) // up  # down - k * up stays positive for k = 1 .. last
        # First k whose drop fits under the value. Repeated as often as it fits, it leaves the value
        # below `up`, where only the last of the progression, the one drop < up, can still fit.
        k = -((value - down) // up)
        while k <= last:
            step, drop = down_step + k * up_step, down - k * up
            repeats = min(value // drop, (n - start) // step)
            if repeats == 0:  # the step leaves 0..n, and every later one is longer
                return
            yield RecordRun(start, value, step, drop, repeats)
            value, start = value - repeats * drop, start + repeats * step
            k = -((value - down) // up)
        down, down_step = down - last * up, down_step + last * up_step
        turns = (up - 1) // down
        up, up_step = up - turns * down, up_step + turns * down_step


def min_value(p: int, a: int, u: int, n: int) -> int:
    """Smallest (u + j*a) mod p over 0 <= j <= n. O(log p)."""
    value = u
    for run in record_runs(p, a, u, n):
        value = run.value - run.repeats * run.drop
    return value


def top_level(p: int, a: int, u: int, n: int, M: int) -> int:
    """Highest level 0..M with a hit. There is one, as level 0 selects everything.

    A higher level selects a subset of a lower one's integers, so an observation is sampled at
    exactly the levels 0 .. top_level.
    """
    smallest = min_value(p, a, u, n)
    level = 0
    while level < M and smallest <= level_limit(p, level + 1):
        level += 1
    return level


def all_levels(p: int, a: int, u: int, n: int, M: int) -> list[int]:
    """First hit at every level 0..M, -1 if there is none: all Delta_i from one walk.

    Equal to ``[min_hit(p, a, u, n, level_limit(p, i)) for i in range(M + 1)]``, in O(M + log p).
    The first value at or below a limit is always a record minimum, and limits fall as the level
    rises, so one pass over the records serves every level in turn.
    """
    first_hits: list[int] = []
    while len(first_hits) <= M and u <= level_limit(p, len(first_hits)):
        first_hits.append(0)
    for run in record_runs(p, a, u, n):
        while len(first_hits) <= M:
            L = level_limit(p, len(first_hits))
            needed = -((L - run.value) // run.drop)  # ceil((value - L) / drop)
            if L < 0 or needed > run.repeats:
                break
            first_hits.append(run.start + needed * run.step)
    return first_hits + [-1] * (M + 1 - len(first_hits))


def expiry_time(
    p: int,
    a: int,
    u: int,
    L: int,
    weight: int,
    time: int,
    f: Callable[[int, int], int],
    t_max: int,
) -> int:
    """Earliest time >= ``time`` at which no integer of an observation is selected: Algorithm 4.

    At age x the observation represents the f(weight, x) first integers in its range. It is
    selected as long as that number exceeds Delta, the position of the first selected one.

    Args:
        p, a, u, L: hash, hash of the first integer and limit of the level, as in `min_hit`.
        weight: initial weight w >= 1.
        time: timestamp t.
        f: integral decay f(w, x), non-increasing in x.
        t_max: an age at which ``f(weight, .)`` is 0.

    O(log t_max) evaluations of f.
    """
    whole = f(weight, 0)
    delta = min_hit(p, a, u, whole - 1, L) if whole > 0 else -1
    if delta == -1:
        return time
    left, right = 0, t_max  # f(w, left) > delta >= f(w, right)
    while right - left > 1:
        middle = (left + right) // 2
        if f(weight, middle) > delta:
            left = middle
        else:
            right = middle
    return time + right
