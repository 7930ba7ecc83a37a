"""Alerts on aggregates of a stream from many sources, while each source may hold back some rows.

A source need not post every row for the hub to know on which side of a threshold the stream is. The
hub divides the distance to the threshold into *allowances*. A source posts when its unposted weight
exceeds its own, and the answer carries the next one. Loss, duplicates, reordering and crashes cost
reports and break no guarantee. See ``docs/monitors.md``.

* :mod:`~decaysketch.monitor.spec`: the definition of a monitor (:class:`Threshold`).
* :mod:`~decaysketch.monitor.messages`: reports, grants, and their encoding.
* :mod:`~decaysketch.monitor.bounds`: the law behind it, and the bounds on each aggregate.
* :mod:`~decaysketch.monitor.pending`, :mod:`~decaysketch.monitor.site`: a source.
* :mod:`~decaysketch.monitor.hub`: accounts, grants and the state.
* :mod:`~decaysketch.monitor.groups`: a state for each group.
* :mod:`~decaysketch.monitor.alert`: when an alert starts and ends.
* :mod:`~decaysketch.monitor.explanation`: a state in one sentence.

None of them does I/O or reads a clock: the caller passes the time.
"""

from decaysketch.monitor.alert import Alert
from decaysketch.monitor.bounds import Reading
from decaysketch.monitor.explanation import explain, explain_groups, group_name
from decaysketch.monitor.groups import GroupsRead, Tracked, group_key, group_of
from decaysketch.monitor.hub import Account, Expected, Granted, Monitor, State
from decaysketch.monitor.messages import GRANTS_HEADER, SITE_HEADER, Answer, Grant, Held, Report
from decaysketch.monitor.site import BudgetSite
from decaysketch.monitor.spec import SPECS, Spec, Threshold, spec_from_dict

__all__ = [
    "GRANTS_HEADER",
    "SITE_HEADER",
    "SPECS",
    "Account",
    "Alert",
    "Answer",
    "BudgetSite",
    "Expected",
    "Grant",
    "Granted",
    "GroupsRead",
    "Held",
    "Monitor",
    "Reading",
    "Report",
    "Spec",
    "State",
    "Threshold",
    "Tracked",
    "explain",
    "explain_groups",
    "group_key",
    "group_name",
    "group_of",
    "spec_from_dict",
]
