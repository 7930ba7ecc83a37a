"""The sketch with a decay chosen per query (Cormode, Tirthapura and Xu, section 4).

* :mod:`~decaysketch.querytime.sketch`: the class for users
* :mod:`~decaysketch.querytime.state`: the definition of the state
* :mod:`~decaysketch.querytime.rows`: the stored rows
* :mod:`~decaysketch.querytime.stratified`: the sample that queries read
* :mod:`~decaysketch.querytime.many` and :mod:`~decaysketch.querytime.rows_by_key`: all this for
  many keys at once
"""
