"""A worker does not outlive the process that started it.

The parent forwards signals and replaces workers that end. If it is killed (by SIGKILL, as the
system does for want of memory) it forwards nothing. Its workers would serve for ever and occupy the
port, so that the replacement started by a supervisor could not listen.

Every process that ``multiprocessing`` has started has a pipe to its parent. The pipe ends with the
parent, however that ended, on every system. (Linux can send a signal instead, but when the *thread*
that forked ends, and only to processes that have requested it before.) The worker then acts as on
SIGTERM: it acknowledges the posts that it has accepted. No parent is left to kill a worker that
does not end, so it leaves anyway after a while. All acknowledged posts are on stable storage.
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
    """Stop this process as soon as its parent has ended. Call this once.

    Args:
        within_s: the time that stopping may take.
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
