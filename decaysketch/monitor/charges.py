"""What a hub knows of numbers that sites hold: their sum is at most what it charges for them.

Site i holds phi_i, and a bound that it reports to leave. The hub charges a site with the largest
bound that the site may believe in, and sees to it that all charges together are within a limit:

    sum phi_i  <=  sum bound_i  <=  sum charge_i  <=  limit     (but for reports under way)

*Any network.* A report says its number in the site's own order (``seq``), and the bound the site
holds as it sends it; an answer names the report that it answers, and a site follows an answer only
to its latest. So after report s a site holds the bound it told there, or one that was given in
answer to s, or a lower one, until a later report; the charge is the largest of these, whatever was
lost, copied or overtaken.

A bound is given out of the reserve, which is the limit less all charges; half of it is shared by
how often sites reported lately, the other half is kept for the next. All are asked, and give up
what they do not use, when the reserve is used up. Cf. the budget protocol of threshold alerts,
whose allowances start at 0 where a report is data; here they start at what was reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Charges"]

_GIVEN = 0.5  # of the reserve, in shares
_FORGET = 0.5  # of the rates, whenever all are asked
_LEAST = 0.25  # rate that a site has all the same


@dataclass(slots=True)
class _Account:
    phi: float
    charge: float
    seq: int = -1
    rate: float = 1.0


class Charges:
    """One limit, and what every site may believe of it.

    Args:
        sites: names of all of them.
        limit: of the sum.
        start: what every site believes before its first report.
    """

    def __init__(self, sites: Iterable[str], limit: float, start: float = math.inf) -> None:
        self.limit = limit
        self._accounts = {site: _Account(start, start) for site in sites}

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
        """Sum of what was reported last."""
        return math.fsum(account.phi for account in self._accounts.values())

    def phi(self, site: str) -> float:
        """What the site reported last."""
        return self._accounts[site].phi

    def charge(self, site: str) -> float:
        """The largest bound that the site may believe in."""
        return self._accounts[site].charge

    def seq(self, site: str) -> int:
        """Of its latest report, -1 before the first."""
        return self._accounts[site].seq

    def take(self, site: str, seq: int, phi: float, bound: float) -> bool:
        """Book a report: phi, and the bound that is held, and False for one that is no news.

        A site that is beyond its bound is charged with what it is at.
        """
        account = self._accounts[site]
        if seq <= account.seq:
            return False
        account.seq, account.phi, account.charge = seq, phi, max(phi, bound)
        return True

    def give(self, site: str) -> float:
        """More room for a site that left its bound: its new bound, charged."""
        account = self._accounts[site]
        account.rate += 1.0
        room = _GIVEN * max(self.reserve, 0.0) * self._share(account)
        account.charge = max(account.charge, account.phi + room)
        return account.charge

    def share_out(self) -> dict[str, float]:
        """New bounds for all, who reported all and hold no more than what they reported."""
        free = _GIVEN * (self.limit - self.known)
        shares = {site: self._share(account) for site, account in self._accounts.items()}
        for site, account in self._accounts.items():
            account.charge = account.phi + free * shares[site]
            account.rate = _FORGET * account.rate + _LEAST
        return {site: account.charge for site, account in self._accounts.items()}

    def split(self) -> dict[str, float]:
        """As :meth:`share_out`, with nothing kept and equal parts."""
        part = (self.limit - self.known) / len(self._accounts)
        for account in self._accounts.values():
            account.charge = account.phi + part
        return {site: account.charge for site, account in self._accounts.items()}

    def restart(self, limit: float, phi: float) -> None:
        """A new limit, under which every site is at phi and believes in no more, before the first
        report of all. Rates stay."""
        self.limit = limit
        for account in self._accounts.values():
            account.phi = account.charge = phi
            account.seq = -1

    def turn(self, limit: float, signs: bool) -> None:
        """A new limit, and other signs of what was reported; new bounds are to follow."""
        self.limit = limit
        for account in self._accounts.values():
            account.phi = account.charge = -account.phi if signs else account.phi

    def _share(self, account: _Account) -> float:
        return account.rate / math.fsum(each.rate for each in self._accounts.values())
