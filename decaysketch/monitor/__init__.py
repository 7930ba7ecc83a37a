"""Alerts on aggregates of a stream that many sites feed, while each holds back what it may.

A site need not post every row for the hub to know on which side of a threshold the stream is: the
hub divides what is left to the threshold into *allowances*, a site posts when what it holds exceeds
its own, and the answer carries the next one. Loss, copies, reordering and crashes cost reports and
no promise. See ``docs/monitors.md``.

* :mod:`~decaysketch.monitor.spec`: what is watched (:class:`Threshold`);
* :mod:`~decaysketch.monitor.messages`: reports, grants, and how they are written;
* :mod:`~decaysketch.monitor.bounds`: the law that it rests on, and the bounds of each aggregate;
* :mod:`~decaysketch.monitor.pending`, :mod:`~decaysketch.monitor.site`: a site;
* :mod:`~decaysketch.monitor.hub`: accounts, grants and the state;
* :mod:`~decaysketch.monitor.alert`: when an alert starts and ends.
* :mod:`~decaysketch.monitor.explanation`: a state in one sentence.

None of them does I/O or reads a clock: who drives them gives the time.
"""

from decaysketch.monitor.alert import Alert
from decaysketch.monitor.bounds import Reading
from decaysketch.monitor.explanation import explain
from decaysketch.monitor.hub import Account, Expected, Granted, Monitor, State
from decaysketch.monitor.messages import HELD_HEADER, SITE_HEADER, Answer, Grant, Held, Report
from decaysketch.monitor.site import BudgetSite
from decaysketch.monitor.spec import SPECS, Spec, Threshold, spec_from_dict

__all__ = [
    "HELD_HEADER",
    "SITE_HEADER",
    "SPECS",
    "Account",
    "Alert",
    "Answer",
    "BudgetSite",
    "Expected",
    "Grant",
    "Granted",
    "Held",
    "Monitor",
    "Reading",
    "Report",
    "Spec",
    "State",
    "Threshold",
    "explain",
    "spec_from_dict",
]
