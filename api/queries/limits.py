"""The processor time that a request gets, and rejections beyond a limit."""

from __future__ import annotations

from collections.abc import Sequence

from api.errors import Fault, InvalidRequestError

__all__ = ["MAX_WORK_S", "refusal"]

MAX_WORK_S = 5.0
"""CPU time for one request, in seconds on one core of a usual machine."""


def refusal(faults: Sequence[Fault]) -> InvalidRequestError:
    """Return a rejection of a request that names the parts at fault."""
    detail = "; ".join(f"{fault.field}: {fault.reason}" for fault in faults[:3])
    if len(faults) > 3:
        detail += f"; and {len(faults) - 3} more"
    return InvalidRequestError(detail, faults)
