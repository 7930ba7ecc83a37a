"""Recent counts per key: counts, joins and heavy hitters for streams without ids.

The ECM-sketch of Papapetrou, Garofalakis and Deligiannakis, "Sketching distributed sliding-window
data streams" (VLDB Journal 24, 2015) is a Count-Min sketch whose counters know time.

* You choose any window, or any decay that does not rise with the age, when you query.
* A count never exceeds its ``sure_upper``.
* A million counts take milliseconds.
* Sources keep their own sketches, and their cells add up without error.

Use it if events have no id, or you removed duplicates upstream, for a guaranteed upper bound, for
the self-join of a stream or the inner product of two, and for very many point queries. If events
have an id, arrive again or by several paths, or carry values, a
:class:`~decaysketch.DecaySketch` is better, and smaller. See ``docs/ecm.md``.

    >>> import decaysketch as ds
    >>> from decaysketch.ecm import ECMParams, ECMSketch
    >>> params = ECMParams.for_accuracy(0.05, 0.1)
    >>> sketch = ECMSketch(params, source="tap-1")
    >>> sketch.update(["ada", "bob", "ada"], [100, 160, 190])
    >>> sketch.key_count("ada", ds.decay.window(60), now=200).value
    1.0
"""

from decaysketch.ecm.collection import ECMCollection
from decaysketch.ecm.params import ECMParams
from decaysketch.ecm.randomized import RandomizedParams, RandomizedSketch
from decaysketch.ecm.sketch import ECMSketch

__all__ = ["ECMCollection", "ECMParams", "ECMSketch", "RandomizedParams", "RandomizedSketch"]
