"""A worker does not outlive the process that started it.

That one hands signals on and starts others in the place of those that end. If it is killed (by
SIGKILL, as the system does for want of memory) it hands on nothing: its workers would go on serving
for ever, holding the port, so that what a supervisor starts in its place cannot listen.

Every process that ``multiprocessing`` has started holds a pipe to the one that did; it ends with
that one, however that ended, on every system. (Linux can send a signal instead, but when the
*thread* that forked ends, and only to who has asked for it before.) The worker then does what it
does on SIGTERM: what it has taken is acknowledged. Nobody is left to kill it should it not come to
an end, so it leaves anyway after a while; what it has acknowledged is on stable storage.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from multiprocessing import parent_process

__all__ = ["end_with_parent"]

_log = logging.getLogger("api")


def end_with_parent(within_s: float) -> None:
    """Stop this process as soon as the one that started it has ended; to be called once.

    Args:
        within_s: what stopping may take.
    """
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        _log.critical("process %s, which started this worker, is gone: stopping", parent.pid)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(within_s)
        os._exit(1)

    threading.Thread(target=watch, name="orphan", daemon=True).start()
