"""A sketch for one integral decay that is fixed when the sketch is built, by expiry times.

Section 3 of Cormode, Tirthapura and Xu. :mod:`~decaysketch.integral.sketch` is the public class.
:mod:`~decaysketch.integral.state` defines its state, :mod:`~decaysketch.integral.rows` stores it,
and :mod:`~decaysketch.integral.sampling` draws the sample that queries read.
"""
