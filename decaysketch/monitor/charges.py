"""The hub's bounds on numbers at sources: their sum is at most the sum of the charges.

Source i has phi_i, and a bound. It reports when it leaves the bound. The hub charges a source with
the largest bound that the source may assume, and keeps all charges together within a limit:

    sum phi_i  <=  sum bound_i  <=  sum charge_i  <=  limit     (but for reports under way)

*Any network.* A report contains its number in the source's own order (``seq``), and the source's
bound at the time of sending. An answer names the report that it answers, and a source follows only
the answer to its latest. So after report s a source keeps the bound in that report, or one that was
given in answer to s, or a lower one, until a later report. The charge is the largest of these,
for any lost, duplicated or overtaken messages.

A bound comes out of the reserve, which is the limit less all charges. Half the reserve is shared by
how often sources reported lately, and the other half is kept for the next. When the reserve is used
up, the hub polls all sources, and they give up the part that they do not use. Compare the budget
protocol for threshold alerts: its allowances start at 0 because a report is data. Here they start
at the reported value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

__all__ = ["Charges"]

_GIVEN = 0.5  # of the reserve, in shares
_FORGET = 0.5  # share of the rates that is forgotten at each poll of all sources
_LEAST = 0.25  # rate added to every source at each poll


@dataclass(slots=True)
class _Account:
    phi: float
    charge: float
    seq: int = -1
    rate: float = 1.0


class Charges:
    """One limit, and the bound that every source may assume under it.

    Args:
        sites: names of all sources.
        limit: limit on the sum.
        start: every source's assumption before its first report.
        seqs: each source's newest report that is too old for this limit, if there is one.
    """

    def __init__(
        self,
        sites: Iterable[str],
        limit: float,
        start: float = math.inf,
        seqs: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.limit = limit
        self._accounts = {site: _Account(start, start, seqs.get(site, -1)) for site in sites}

    def saved(self) -> dict[str, Any]:
        """The record as JSON-ready form. An infinite charge is null."""
        accounts = {
            site: {
                "phi": each.phi, "charge": _finite(each.charge), "seq": each.seq, "rate": each.rate
            }
            for site, each in self._accounts.items()
        }  # fmt: skip
        return {"limit": self.limit, "accounts": accounts}

    @classmethod
    def resumed(cls, saved: Mapping[str, Any]) -> Self:
        """The record that :meth:`saved` returned."""
        charges = cls((), saved["limit"])
        charges._accounts = {
            site: _Account(**account | {"charge": _or_infinite(account["charge"])})
            for site, account in saved["accounts"].items()
        }
        return charges

    @property
    def total(self) -> float:
        """Sum of charges. O(sites)."""
        return math.fsum(account.charge for account in self._accounts.values())

    @property
    def reserve(self) -> float:
        """Limit less all charges."""
        return self.limit - self.total

    @property
    def known(self) -> float:
        """Sum of the last reports."""
        return math.fsum(account.phi for account in self._accounts.values())

    def phi(self, site: str) -> float:
        """The source's last report."""
        return self._accounts[site].phi

    def charge(self, site: str) -> float:
        """The largest bound that the source may assume."""
        return self._accounts[site].charge

    def seq(self, site: str) -> int:
        """Number of its latest report. Before the first: of the newest that is too old, or -1."""
        return self._accounts[site].seq

    def take(self, site: str, seq: int, phi: float, bound: float) -> bool:
        """Record a report: phi, and the current bound. Return False for a report that is not new.

        A source beyond its bound is charged with its phi.
        """
        account = self._accounts[site]
        if seq <= account.seq:
            return False
        account.seq, account.phi, account.charge = seq, phi, max(phi, bound)
        return True

    def give(self, site: str) -> float:
        """Return a new bound, with more space, for a source that left its bound. It is charged."""
        account = self._accounts[site]
        account.rate += 1.0
        room = _GIVEN * max(self.reserve, 0.0) * self._share(account)
        account.charge = max(account.charge, account.phi + room)
        return account.charge

    def share_out(self) -> dict[str, float]:
        """Return new bounds for all sources, after all have reported and keep no more than they
        reported.
        """
        free = _GIVEN * (self.limit - self.known)
        shares = {site: self._share(account) for site, account in self._accounts.items()}
        for site, account in self._accounts.items():
            account.charge = account.phi + free * shares[site]
            account.rate = _FORGET * account.rate + _LEAST
        return {site: account.charge for site, account in self._accounts.items()}

    def split(self) -> dict[str, float]:
        """As :meth:`share_out`, without a reserve and with equal parts."""
        part = (self.limit - self.known) / len(self._accounts)
        for account in self._accounts.values():
            account.charge = account.phi + part
        return {site: account.charge for site, account in self._accounts.items()}

    def restart(self, limit: float, phi: float) -> None:
        """Set a new limit, under which every source is at phi and assumes no more, before the first
        report from each. Rates stay.
        """
        self.limit = limit
        for account in self._accounts.values():
            account.phi = account.charge = phi
            account.seq = -1

    def turn(self, limit: float, signs: bool) -> None:
        """Set a new limit, and change the signs of the reported values. New bounds must follow."""
        self.limit = limit
        for account in self._accounts.values():
            account.phi = account.charge = -account.phi if signs else account.phi

    def _share(self, account: _Account) -> float:
        return account.rate / math.fsum(each.rate for each in self._accounts.values())


def _finite(number: float) -> float | None:
    return number if number < math.inf else None


def _or_infinite(number: float | None) -> float:
    return math.inf if number is None else number
