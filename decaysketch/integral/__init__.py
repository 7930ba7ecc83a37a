"""A sketch for one decay that is fixed when it is built: any integral decay, by expiry times.

Section 3 of Cormode, Tirthapura and Xu. :mod:`~decaysketch.integral.sketch` is what users see,
:mod:`~decaysketch.integral.state` says what it holds, :mod:`~decaysketch.integral.rows` holds it,
:mod:`~decaysketch.integral.sampling` makes the sample that queries read.
"""
