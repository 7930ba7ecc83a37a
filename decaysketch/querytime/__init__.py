"""The sketch whose decay is chosen by the query, of Cormode, Tirthapura and Xu, section 4.

:mod:`~decaysketch.querytime.sketch` is what users see, :mod:`~decaysketch.querytime.state` says
what it holds, :mod:`~decaysketch.querytime.rows` holds it, :mod:`~decaysketch.querytime.stratified`
makes the sample that queries read, :mod:`~decaysketch.querytime.many` and
:mod:`~decaysketch.querytime.rows_by_key` do all this for many keys at once.
"""
