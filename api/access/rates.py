"""The request rate of a caller: a token bucket for each key, or for each address without one.

A bucket holds at most ``burst`` tokens, gains ``rate_per_s`` and pays one for each request. The
table is bounded: the caller with the longest silence is forgotten, and begins again with a full
bucket. Each process counts for itself.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["Rates", "address_of"]

_CALLERS_KEPT = 10_000
_ADDRESSES_KEPT = 1_000


@dataclass
class _Bucket:
    tokens: float
    filled_at: float


class Rates:
    """Token buckets; O(1) time for each request, O(``kept``) memory.

    Args:
        rate_per_s: tokens gained in a second; 0: every request is allowed.
        burst: most tokens of a bucket.
        kept: most buckets.
    """

    def __init__(self, rate_per_s: float, burst: int, kept: int = _CALLERS_KEPT) -> None:
        self.rate_per_s = rate_per_s
        self.burst = burst
        self._kept = kept
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_s(self, caller: str, now: float) -> float:
        """Pay one token and return 0, or return the seconds until there is one.

        Args:
            caller: the owner of the bucket.
            now: a clock that never goes back, in seconds.
        """
        if self.rate_per_s == 0:
            return 0.0
        bucket = self._buckets.get(caller)
        if bucket is None:
            if len(self._buckets) >= self._kept:
                self._buckets.popitem(last=False)
            bucket = self._buckets[caller] = _Bucket(float(self.burst), now)
        self._buckets.move_to_end(caller)
        gained = (now - bucket.filled_at) * self.rate_per_s
        bucket.tokens = min(bucket.tokens + gained, float(self.burst))
        bucket.filled_at = now
        if bucket.tokens >= 1:
            bucket.tokens -= 1
            return 0.0
        return (1 - bucket.tokens) / self.rate_per_s


@lru_cache(_ADDRESSES_KEPT)
def address_of(host: str) -> str:
    """Return the bucket of a client address: the address, or its /64 network of IPv6, where one
    machine may have every address.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
