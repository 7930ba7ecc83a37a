"""``python -m quality.monitor``: what monitors of many sites send, and whether they are right.

python -m quality.monitor            lists what there is
python -m quality.monitor faults     one study; its options: --help
"""

from __future__ import annotations

import sys
from typing import Final

from quality.monitor import (
    alerts,
    faults,
    frequent,
    function_faults,
    replay,
    selfjoin,
    served,
    topk,
)

__all__ = ["main"]

STUDIES: Final = {
    "alerts": (alerts.main, "posts that an alert costs, on logs of deliveries"),
    "faults": (faults.main, "promises of the budget protocol, whatever fails"),
    "function-faults": (
        function_faults.main,
        "promises of functions across sources, whatever fails",
    ),
    "replay": (replay.main, "alerts over real processes and HTTP, which are killed"),
    "selfjoin": (selfjoin.main, "self-join size: figures 8a to 8c, beside four other protocols"),
    "served": (served.main, "figures 8a to 8c over real processes and HTTP, which are killed"),
    "frequent": (frequent.main, "frequent items: budgets beside the geometric method"),
    "topk": (topk.main, "certified top-k rounds beside TOPiCo"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 1 where a claim does not hold."""
    name, *options = (sys.argv[1:] if arguments is None else arguments) or [""]
    if name in ("", "-h", "--help"):
        for each, (_, text) in STUDIES.items():
            print(f"{each:<15} {text}")
        return 0
    if name not in STUDIES:
        print(f"{name!r} is not one of: {', '.join(STUDIES)}", file=sys.stderr)
        return 2
    return STUDIES[name][0](options)


if __name__ == "__main__":
    raise SystemExit(main())
