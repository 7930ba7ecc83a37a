"""Numba kernels of the range hash: top levels, range samples and first hits. int64 throughout.

An observation of weight w and id stands for the hash values (u + j a) mod p, 0 <= j < w, where
u = (a1 id + b) mod p and a1 = a max_weight mod p. All kernels need p < 2^61, ids below
2^id_bits <= 2^56, and columns that were validated. See ``reference.py`` for the same quantities in
plain integers.

Derivations
-----------
(1) a x + b mod p without 128-bit products. For x < 2^50 the float64 product x * (a / p) is off by
    at most 1/2 from the true quotient; rounded to the nearest integer q, the remainder a x - q p,
    computed modulo 2^64, is within (-p, p) and one conditional addition finishes it. Quotients in
    (3) and (4) are found in the same way. Wider ids are hashed in two parts of 28 bits.
(2) Conversions between int64 and float64 by bit patterns: for 0 <= n < 2^51 the float64 whose bits
    are those of 2^52, or'ed with n, is 2^52 + n exactly. Unlike the hardware's conversion this
    vectorises on every CPU; rounding is to nearest, which (1) relies on.
(3) Minimum of the progression. A *down step* (q, d) lowers the value by d = -q a mod p at the cost
    of q positions. The record minima of the progression are reached by the down steps that are
    best approximations from below, tried in order of increasing q: take the step while the value
    is >= d and q positions remain. With p and a fixed the list is fixed (about a dozen steps for
    weights below 1,000), so every observation runs the same branch-free comparisons. Within one
    group of the Euclidean chain, d falls by a constant e from step to step and only the last step
    can repeat; long groups are one division, repeats are binary multiples.
(4) Number of hits of a level. With n terms and threshold L = floor(p / 2^i),
    #{j : (u + j a) mod p < L} = n + F(u) - F(u + p - L), F(v) = sum_j floor((v + j a) / p), and F
    is the Euclidean floor sum. Its moduli are the same for all observations: a fixed chain.
    Intermediate sums may wrap around; the difference is exact modulo 2^64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import float64, int64, njit, types
from numba.extending import intrinsic

MISSING_KEY = -(1 << 63)  # ``observations.MISSING_KEY``; also the bits of -0.0
BLOCK = 512  # rows per block: the scratch of a block stays in the first-level cache
NARROW_ID_BITS = 50  # ids below 2^50 are hashed in one multiplication, see (1)

# Kinds of row in the table of steps
REPEATABLE = 0  # (kind, q, d, base q, 0, 0): take (q, d) if possible
GROUP = 1  # (kind, q0, d0, e, qe, length): take the first possible (q0 + k qe, d0 - k e)
STEP_FIELDS = 6

JIT: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}

_TWO_52 = 4503599627370496.0
_TWO_52_BITS = 0x4330000000000000
_LOW_52 = (1 << 52) - 1
_TWO_84_BITS = 0x4530000000000000
_TWO_84_AND_52 = 19342813118337666422669312.0  # 2^84 + 2^52
_LOW_32 = (1 << 32) - 1
_PART_BITS = 28
_PART_MASK = (1 << _PART_BITS) - 1
# Above this quotient r / a the float64 estimate in the floor sum may be off by more than one.
_EXACT_DIVISION = 1 << 49


@intrinsic
def _bits_to_float(typing_context: Any, bits: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@intrinsic
def _float_to_bits(typing_context: Any, number: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@njit(inline="always")
def _to_float(n):
    """float64 of 0 <= n < 2^51, see (2)."""
    return _bits_to_float(n | int64(_TWO_52_BITS)) - float64(_TWO_52)


@njit(inline="always")
def _wide_to_float(n):
    """Nearest float64 of 0 <= n < 2^63, by halves of 32 bits."""
    high = _bits_to_float((n >> int64(32)) | int64(_TWO_84_BITS)) - float64(_TWO_84_AND_52)
    return high + _bits_to_float((n & int64(_LOW_32)) | int64(_TWO_52_BITS))


@njit(inline="always")
def _to_int(x):
    """Nearest int64 of 0 <= x < 2^51, see (2)."""
    return _float_to_bits(x + float64(_TWO_52)) & int64(_LOW_52)


@njit(inline="always")
def _multiply_mod(a, a_over_p, x, p):
    """a x mod p for 0 <= a < p and 0 <= x < 2^50, see (1)."""
    q = _to_int(_to_float(x) * a_over_p)
    r = a * x - q * p
    return r + p if r < int64(0) else r


@njit(inline="always")
def _add_mod(x, y, p):
    r = x + y - p
    return r + p if r < int64(0) else r


@njit(**JIT)
def mix_block(ids, start, count, id_bits, mix, out):
    """out[k] = the mixed id of row start + k: the bijection of ``hashing.mix_ids``, fused."""
    if mix.shape[0] == 0:
        for k in range(count):
            out[k] = ids[start + k]
        return
    mask = (int64(1) << id_bits) - int64(1)
    shift = (id_bits + int64(1)) >> int64(1)
    k0, m0, k1, m1, k2, m2 = mix[0], mix[1], mix[2], mix[3], mix[4], mix[5]
    for k in range(count):
        x = ((ids[start + k] ^ k0) * m0) & mask
        x ^= x >> shift
        x = ((x ^ k1) * m1) & mask
        x ^= x >> shift
        x = ((x ^ k2) * m2) & mask
        out[k] = x ^ (x >> shift)


@njit(**JIT)
def hash_block(x, count, id_bits, a1, b, p):
    """Replace mixed ids x[:count] by u = (a1 x + b) mod p, the hash of the first integer."""
    a1_over_p = float64(a1) / float64(p)
    if id_bits <= int64(NARROW_ID_BITS):
        for k in range(count):
            x[k] = _add_mod(_multiply_mod(a1, a1_over_p, x[k], p), b, p)
    else:
        # a1 x = (a1 2^28 mod p) (x >> 28) + a1 (x & (2^28 - 1))
        a2 = _multiply_mod(a1, a1_over_p, int64(1) << int64(_PART_BITS), p)
        a2_over_p = float64(a2) / float64(p)
        for k in range(count):
            high = _multiply_mod(a2, a2_over_p, x[k] >> int64(_PART_BITS), p)
            low = _multiply_mod(a1, a1_over_p, x[k] & int64(_PART_MASK), p)
            x[k] = _add_mod(_add_mod(high, low, p), b, p)


@njit(**JIT)
def walk_block(x, remaining, count, steps):
    """Walk x[k] down to the minimum of its progression of 1 + remaining[k] terms, see (3)."""
    longest = int64(0)
    for k in range(count):
        longest = max(longest, remaining[k])
    for s in range(steps.shape[0]):
        if steps[s, 0] == int64(REPEATABLE):
            q, d = steps[s, 1], steps[s, 2]
            if steps[s, 3] > longest:
                break
            if q > longest:
                continue
            for k in range(count):
                value, rest = x[k], remaining[k]
                take = (value >= d) & (rest >= q)
                x[k] = value - d if take else value
                remaining[k] = rest - q if take else rest
        else:
            q0, d0, e, qe, length = steps[s, 1], steps[s, 2], steps[s, 3], steps[s, 4], steps[s, 5]
            if q0 + qe > longest:
                break
            lowest = d0 - length * e
            one_over_e = 1.0 / float64(e)
            for k in range(count):
                value, rest = x[k], remaining[k]
                inside = (value >= lowest) & (value < d0)
                gap = d0 - value if inside else e
                n = _to_int(_wide_to_float(gap) * one_over_e)  # to nearest: never above the ceiling
                n = n + int64(1) if n * e < gap else n
                q = q0 + n * qe
                take = inside & (q <= rest)
                x[k] = value - (d0 - n * e) if take else value
                remaining[k] = rest - q if take else rest


@njit(**JIT)
def minimum_block(ids, weights, start, count, id_bits, mix, a1, b, p, steps, x, remaining):
    """x[k] = least hash value in the range of observation start + k; destroys remaining."""
    mix_block(ids, start, count, id_bits, mix, x)
    hash_block(x, count, id_bits, a1, b, p)
    for k in range(count):
        remaining[k] = weights[start + k] - int64(1)
    walk_block(x, remaining, count, steps)


@njit(**JIT)
def level_block(x, count, p, top, out):
    """out[k] = max{i <= top : x[k] < floor(p / 2^i)}, the top level of a minimum hash value."""
    p_exponent = int64(0)
    while (p >> (p_exponent + int64(1))) > int64(0):
        p_exponent += int64(1)
    p_exponent += int64(1023)
    for k in range(count):
        y = x[k] + int64(1)
        # difference of binary exponents: off by at most one, also where float64(y) rounds up
        level = max(p_exponent - (_float_to_bits(_wide_to_float(y)) >> int64(52)), int64(0))
        level = level - int64(1) if (y << level) > p else level
        level = level + int64(1) if (y << (level + int64(1))) <= p else level
        out[k] = min(level, top)


@njit(**JIT)
def top_levels(ids, weights, id_bits, mix, a1, b, p, top, steps, levels):
    """levels[k] = top level of the observation (ids[k], weights[k]); levels: int8[n]."""
    x = np.empty(BLOCK, np.int64)
    remaining = np.empty(BLOCK, np.int64)
    n = ids.shape[0]
    for start in range(0, n, BLOCK):
        count = min(int64(BLOCK), n - start)
        minimum_block(ids, weights, start, count, id_bits, mix, a1, b, p, steps, x, remaining)
        level_block(x, count, p, top, remaining)
        for k in range(count):
            levels[start + k] = remaining[k]


@njit(**JIT)
def batch_is_valid(values, weights, times, ids, n, float_bits, max_weight, id_limit, time_limit):
    """Whether every row is within its bounds (finite, or not the missing key, for the value)."""
    fault = int64(0)  # its sign bit gathers every broken bound
    exponent = int64(0x7FF << 52)
    if float_bits:
        for k in range(n):
            fault |= exponent - int64(1) - (values[k] & exponent)
    else:
        for k in range(n):
            difference = values[k] ^ int64(MISSING_KEY)
            fault |= ~(difference | -difference)
    for k in range(n):
        fault |= weights[k] | (max_weight - weights[k])
        fault |= ids[k] | (id_limit - int64(1) - ids[k])
        sign = times[k] >> int64(63)
        magnitude = (times[k] ^ sign) - sign  # stays negative for the smallest int64 alone
        fault |= magnitude | (time_limit - magnitude)
    return fault >= int64(0)


@njit(inline="always")
def _value_key(bits):
    """Value key of a float64 by its bits, see ``observations.py``."""
    bits = int64(0) if bits == int64(MISSING_KEY) else bits  # -0.0 becomes 0.0
    return bits ^ ((bits >> int64(63)) & int64(0x7FFFFFFFFFFFFFFF))


@njit(**JIT)
def admit(
    values, weights, times, ids, stop, float_bits, id_bits, mix, a1, b, p, top, steps, marks,
    to_values, to_weights, to_times, to_ids, to_levels, at, room,
):  # fmt: skip
    """Append the rows of [0, stop) that are later than the watermark of their top level.

    ``values`` are value keys, or the bits of float64 numbers where ``float_bits``. Takes blocks
    from the end, since the last rows of a batch are mostly its latest, while a block fits into
    ``room``. Rows of weight 0 are passed over. Returns (rows still to do, rows held).
    """
    x = np.empty(BLOCK, np.int64)
    remaining = np.empty(BLOCK, np.int64)
    while stop > int64(0) and at + int64(BLOCK) <= room:
        count = min(int64(BLOCK), stop)
        start = stop - count
        minimum_block(ids, weights, start, count, id_bits, mix, a1, b, p, steps, x, remaining)
        level_block(x, count, p, top, remaining)
        taken = int64(0)
        for k in range(count):
            x[taken] = k
            later = times[start + k] > marks[remaining[k]]
            taken += int64(1) if later & (weights[start + k] > int64(0)) else int64(0)
        for c in range(taken):
            k = x[c]
            row = start + k
            to_values[at] = _value_key(values[row]) if float_bits else values[row]
            to_weights[at] = weights[row]
            to_times[at] = times[row]
            to_ids[at] = ids[row]
            to_levels[at] = remaining[k]
            at += int64(1)
        stop = start
    return stop, at


@njit(**JIT)
def admit_checked(
    values, weights, times, ids, n, float_bits, max_weight, id_limit, time_limit,
    id_bits, mix, a1, b, p, top, steps, marks,
    to_values, to_weights, to_times, to_ids, to_levels, at, room,
):  # fmt: skip
    """:func:`admit` of a batch that was not validated.

    Returns (rows of weight 0, rows still to do, rows held); the first is -1 where a row is out of
    bounds, and then nothing was appended.
    """
    if not batch_is_valid(
        values, weights, times, ids, n, float_bits, max_weight, id_limit, time_limit
    ):
        return int64(-1), n, at
    zero_weight = int64(0)
    for k in range(n):
        zero_weight += int64(1) if weights[k] == int64(0) else int64(0)
    todo, at = admit(
        values, weights, times, ids, n, float_bits, id_bits, mix, a1, b, p, top, steps, marks,
        to_values, to_weights, to_times, to_ids, to_levels, at, room,
    )  # fmt: skip
    return zero_weight, todo, at


@njit(**JIT)
def minimum_hashes(ids, weights, id_bits, mix, a1, b, p, steps, minima):
    """minima[k] = least hash value in the range of the observation; minima: int64[n]."""
    x = np.empty(BLOCK, np.int64)
    remaining = np.empty(BLOCK, np.int64)
    n = ids.shape[0]
    for start in range(0, n, BLOCK):
        count = min(int64(BLOCK), n - start)
        minimum_block(ids, weights, start, count, id_bits, mix, a1, b, p, steps, x, remaining)
        for k in range(count):
            minima[start + k] = x[k]


@njit(inline="always")
def _floor_divide(a, n, v, modulus, a_over_m, one_over_m):
    """(a n + v) divided by the modulus: quotient and remainder, for a, v < modulus, n < 2^32."""
    n &= int64(_LOW_32)
    y = _to_int(_to_float(n) * a_over_m + _wide_to_float(v) * one_over_m)
    r = a * n + v - y * modulus
    y = y - int64(1) if r < int64(0) else y
    r = r + modulus if r < int64(0) else r
    return y, r


@njit(**JIT)
def floor_sum_block(n, v, total, count, chain):
    """total[k] += sum_{j < n[k]} floor((a j + v[k]) / p), 0 <= v < 2p; destroys n and v.

    Rows of ``chain`` are (modulus, multiplier, modulus // multiplier) along the Euclidean chain of
    (p, a); the quotients of n shrink to 0 after O(log max_weight) rows.
    """
    p = chain[0, 0]
    for k in range(count):
        wrap = v[k] >= p
        total[k] += n[k] if wrap else int64(0)
        v[k] -= p if wrap else int64(0)
    for c in range(chain.shape[0]):
        modulus, a, ratio = chain[c, 0], chain[c, 1], chain[c, 2]
        if a == int64(0):
            break
        a_over_m = float64(a) / float64(modulus)
        one_over_m = 1.0 / float64(modulus)
        one_over_a = 1.0 / float64(a)
        left = int64(0)
        if ratio < int64(_EXACT_DIVISION):
            for k in range(count):
                y, r = _floor_divide(a, n[k], v[k], modulus, a_over_m, one_over_m)
                z = _to_int(_wide_to_float(r) * one_over_a)
                s = r - z * a
                z = z - int64(1) if s < int64(0) else z
                s = s + a if s < int64(0) else s
                pairs = ((y & int64(_LOW_32)) * ((y - int64(1)) & int64(_LOW_32))) >> int64(1)
                total[k] += pairs * ratio + (y & int64(_LOW_32)) * z
                n[k] = y
                v[k] = s
                left |= y
        else:  # the quotient of r and a is too wide for a float64 estimate
            for k in range(count):
                y, r = _floor_divide(a, n[k], v[k], modulus, a_over_m, one_over_m)
                z = r // a
                total[k] += ((y * (y - int64(1))) >> int64(1)) * ratio + y * z
                n[k] = y
                v[k] = r - z * a
                left |= y
        if left == int64(0):
            break


@njit(**JIT)
def range_samples(ids, weights, levels, id_bits, mix, a1, b, p, chain, hits):
    """hits[k] = number of the observation's hash values below floor(p / 2^levels[k]), see (4)."""
    x = np.empty(BLOCK, np.int64)
    v = np.empty(BLOCK, np.int64)
    n = np.empty(BLOCK, np.int64)
    base = np.empty(BLOCK, np.int64)
    shifted = np.empty(BLOCK, np.int64)
    rows = ids.shape[0]
    for start in range(0, rows, BLOCK):
        count = min(int64(BLOCK), rows - start)
        top = int64(0)
        for k in range(count):
            top = max(top, int64(levels[start + k]))
        if top == int64(0):  # every integer is selected at level 0
            for k in range(count):
                hits[start + k] = weights[start + k]
            continue
        mix_block(ids, start, count, id_bits, mix, x)
        hash_block(x, count, id_bits, a1, b, p)
        for k in range(count):
            v[k] = x[k] + p - (p >> int64(levels[start + k]))
            n[k] = weights[start + k]
            base[k] = int64(0)
            shifted[k] = int64(0)
        floor_sum_block(n, x, base, count, chain)
        for k in range(count):
            n[k] = weights[start + k]
        floor_sum_block(n, v, shifted, count, chain)
        for k in range(count):
            hits[start + k] = weights[start + k] + base[k] - shifted[k]


@njit(inline="always")
def _first_hit(p, a, u, n, threshold):
    """First j <= n with (u + j a) mod p < threshold, else -1: the walk of (3), one Euclid step at a
    time, so that no table for (p, a) is needed."""
    if u < threshold:
        return int64(0)
    if a == int64(0) or threshold <= int64(0):
        return int64(-1)
    x, rest = u, n
    d, qd, e, qe = p, int64(0), a, int64(1)  # smallest down step so far, smallest up step
    while qd + qe <= rest:
        length = (d - int64(1)) // e
        if x < d:
            k = (d - x + e - int64(1)) // e
            if k <= length:
                q = qd + k * qe
                if q > rest:
                    return int64(-1)
                x -= d - k * e
                rest -= q
                if x < threshold:
                    return n - rest
        d -= length * e
        qd += length * qe
        if d <= x:
            wanted = (x - threshold) // d + int64(1)
            repeats = min(wanted, x // d, rest // qd)
            x -= repeats * d
            rest -= repeats * qd
            if x < threshold:
                return n - rest
        if d <= int64(1):
            break
        if e > d:
            m = (e - int64(1)) // d
            e -= m * d
            qe += m * qd
    return int64(-1)


@njit(**JIT)
def min_hits(ids, weights, levels, id_bits, mix, a, a1, b, p, out):
    """out[k] = first j with a hash value below floor(p / 2^levels[k]), else -1 (MinHit)."""
    x = np.empty(BLOCK, np.int64)
    n = ids.shape[0]
    for start in range(0, n, BLOCK):
        count = min(int64(BLOCK), n - start)
        mix_block(ids, start, count, id_bits, mix, x)
        hash_block(x, count, id_bits, a1, b, p)
        for k in range(count):
            out[start + k] = _first_hit(
                p, a, x[k], weights[start + k] - int64(1), p >> int64(levels[start + k])
            )


@njit(inline="always")
def _all_first_hits(p, a, u, n, top, out, row):
    """out[row, i] = first j <= n with (u + j a) mod p < floor(p / 2^i), for the levels 0..top.

    Follows the record minima as ``reference.record_runs`` does; a level falls to the record that
    first passes its limit, and limits fall as the level rises. The entries must be -1 before.
    """
    level = int64(0)
    while level <= top and u < (p >> level):
        out[row, level] = int64(0)
        level += int64(1)
    if a == int64(0):
        return
    value, start = u, int64(0)
    down, down_step = p, int64(0)  # smallest down step so far, and its length
    up, up_step = a, int64(1)  # smallest up step so far
    while level <= top and down != up and down_step + up_step <= n - start:
        last = (down - int64(1)) // up
        k = -((value - down) // up)  # the first step down - k up that fits under the value
        while k <= last:
            if k > (n - start - down_step) // up_step:  # longer than 0..n; later ones are as well
                return
            step, drop = down_step + k * up_step, down - k * up
            repeats = min(value // drop, (n - start) // step)
            while level <= top:
                needed = -(((p >> level) - int64(1) - value) // drop)
                if needed > repeats:
                    break
                out[row, level] = start + needed * step
                level += int64(1)
            value -= repeats * drop
            start += repeats * step
            k = -((value - down) // up)
        # Products are formed only where they stay within 0..n: they could pass 2^63.
        if last > (n - start - down_step) // up_step:
            return
        down -= last * up
        down_step += last * up_step
        turns = (up - int64(1)) // down
        if turns > (n - start - up_step) // down_step:
            return
        up -= turns * down
        up_step += turns * down_step


@njit(**JIT)
def min_hits_all_levels(ids, weights, id_bits, mix, a, a1, b, p, top, out):
    """out[k, i] = first j with a hash value below floor(p / 2^i), else -1; out: int64[n, M + 1]."""
    x = np.empty(BLOCK, np.int64)
    n = ids.shape[0]
    for start in range(0, n, BLOCK):
        count = min(int64(BLOCK), n - start)
        mix_block(ids, start, count, id_bits, mix, x)
        hash_block(x, count, id_bits, a1, b, p)
        for k in range(count):
            for level in range(top + int64(1)):
                out[start + k, level] = int64(-1)
            _all_first_hits(p, a, x[k], weights[start + k] - int64(1), top, out, start + k)
