"""How often each key came lately: counts, joins and heavy hitters of streams without ids.

The ECM-sketch of Papapetrou, Garofalakis and Deligiannakis, "Sketching distributed sliding-window
data streams" (VLDB Journal 24, 2015): a Count-Min whose counters know time. Any window, and any
decay that does not rise with the age, is chosen when the question is asked; a count never exceeds
its ``sure_upper``; a million counts are answered in milliseconds; sites keep sketches of their own,
whose cells add up without error.

Use it where events have no id, or copies were removed upstream; for a number that is surely not too
small; for the self-join of a stream or the inner product of two; for very many point queries. Where
events have an id, come again or by several ways, or carry values, a
:class:`~decaysketch.DecaySketch` is better, and smaller. ``docs/ecm.md`` says more.

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
