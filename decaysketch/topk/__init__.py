"""The k items with the largest counts over many sources, with a certificate.

Sources count items separately, each event at one source. A hub queries them in rounds and returns
the k items with the largest total counts, as of the round's time. A ``certain`` list and its counts
are correct even if the network lost, repeated or reordered messages: see
:mod:`decaysketch.topk.rounds`. Nothing here does input or output.

    >>> from decaysketch.topk import TopKHub, TopKSite
    >>> hub = TopKHub(1, ["north", "south"])
    >>> counts = {"north": {"ada": 10, "eve": 6}, "south": {"bob": 9, "eve": 5}}
    >>> sites = {name: TopKSite(name, inc=1) for name in counts}
    >>> ask = hub.begin(as_of=3600)
    >>> for name, site in sites.items():
    ...     _ = site.take(ask)
    ...     answer = hub.take(site.post(counts[name], as_of=3600))
    >>> found = hub.top()
    >>> found.certain, [(row.item, row.lower) for row in found.rows]
    (True, [('eve', 11)])

:class:`TopKSpec` defines a list that the aggregator maintains.
The study ``quality/papers/topico.py`` is TOPiCo, a protocol without a hub, as a baseline.
"""

from decaysketch.topk.messages import Ask, Post
from decaysketch.topk.rounds import Heard, Row, TopK, TopKHub, TopKSite
from decaysketch.topk.spec import TopKSpec
from decaysketch.topk.tally import Tally

__all__ = ["Ask", "Heard", "Post", "Row", "Tally", "TopK", "TopKHub", "TopKSite", "TopKSpec"]
