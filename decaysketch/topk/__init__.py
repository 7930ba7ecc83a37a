"""The k items that came most often over many sites, with a certificate.

Sites count items apart, each event at one site; a hub asks them in rounds and says which k items
have the largest counts of all sites together, as of the round's time. A list that is ``certain`` is
right and so are its counts, whatever the network lost, repeated or reordered: see
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

:class:`TopKSpec` says what a list is of, where a hub is run by the aggregator.
The study ``quality/papers/topico.py`` is TOPiCo, a protocol without a hub, as a baseline.
"""

from decaysketch.topk.messages import Ask, Post
from decaysketch.topk.rounds import Heard, Row, TopK, TopKHub, TopKSite
from decaysketch.topk.spec import TopKSpec
from decaysketch.topk.tally import Tally

__all__ = ["Ask", "Heard", "Post", "Row", "Tally", "TopK", "TopKHub", "TopKSite", "TopKSpec"]
