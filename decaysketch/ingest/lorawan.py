"""Common parts of LoRaWAN network servers.

The device, the session and the counter in the session name a frame. A device that joins again
begins at 0 in a new session, so no frame is confused with one from the old session. Anything that
differs between duplicates, such as the gateways that heard it or a server's id, is not part of the
name.

Devices with activation by personalization (ABP) have one session for ever. If such a device counts
from 0 again, it repeats earlier ids. The later reading then replaces the earlier one, unless the
mapping has ``reset``. The server and the bridge count such readings and warn.

Time of a frame
    The earliest that a gateway reports. Few gateways have a clock, and some have a wrong one: they
    begin with 1970, 1980, 2000 or the date of their software until they learn the time. The server
    ignores a gateway's time (:func:`frame_time`) if it lies

    * outside the years 1990 to 2100,
    * more than five minutes after the network server received the frame, or
    * more than a day from the server's time if another gateway lies within a day, or more
      than a year before it.

    So the time of a gateway that was offline for some days and forwards stored frames is used if
    no other gateway disagrees. If no time is plausible, the earliest counts, as in a simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from decaysketch.core.plausible_times import is_dated
from decaysketch.core.text_values import TextError, integer_of
from decaysketch.ingest.document_values import moment
from decaysketch.ingest.mapping import shown
from decaysketch.ingest.paths import ABSENT, Here, Path
from decaysketch.ingest.readings import RefusedError

__all__ = ["Clocks", "clocks_of", "counter_of", "frame_time", "server_time", "text_of"]

_NS = 1_000_000_000
_AHEAD_NS, _NEAR_NS, _STORED_NS = 300 * _NS, 86_400 * _NS, 366 * 86_400 * _NS
_LIMIT_NS = 1 << 63


class Clocks(NamedTuple):
    """The times that the gateways that heard a frame reported.

    Attributes:
        said: gateways with their time.
        unread: gateways with an unreadable time, with its text.
    """

    said: tuple[tuple[str, int], ...]
    unread: tuple[tuple[str, str], ...]


def text_of(path: Path, here: Here) -> str:
    """Return a text, empty if it is absent.

    Raises:
        RefusedError: it is something else.
    """
    found = path.find(here)
    if found is ABSENT or found is None:
        return ""
    if type(found) is not str:
        raise RefusedError(f"{path.text} is {shown(found)}; expected a text")
    return found


def counter_of(path: Path, here: Here) -> int:
    """Return the counter of a frame. Protobuf's JSON omits a 0.

    Raises:
        RefusedError: it is no integer from 0.
    """
    found = path.find(here)
    if found is ABSENT:
        return 0
    if type(found) is str:
        with suppress(TextError):
            found = integer_of(found)
    if type(found) is not int or not 0 <= found < 1 << 32:
        raise RefusedError(f"{path.text} is {shown(found)}; expected a 32-bit integer")
    return found


def clocks_of(receptions: Path, gateway: Path, time: Path, here: Here) -> Clocks:
    """Return the clocks of the gateways that heard a frame. Few gateways have one.

    Raises:
        RefusedError: the receptions are no array.
    """
    heard = receptions.find(here)
    if heard is ABSENT or heard is None:
        return Clocks((), ())
    if type(heard) is not list:
        raise RefusedError(f"{receptions.text} is {shown(heard)}; expected an array")
    said: list[tuple[str, int]] = []
    unread: list[tuple[str, str]] = []
    for each in heard:
        there = Here(each, "")
        written = time.find(there)
        if written is ABSENT or written is None or written == "":
            continue
        name = gateway.find(there)
        name = name if type(name) is str else ""
        try:
            said.append((name, moment(written, time.text)))
        except RefusedError:
            unread.append((name, shown(written)))
    return Clocks(tuple(said), tuple(unread))


def server_time(paths: Sequence[Path], here: Here) -> int | None:
    """Return the time at which the network server received a frame. None: the message has none.

    Raises:
        RefusedError: it is no time.
    """
    for path in paths:
        if said := text_of(path, here):
            return moment(said, path.text)
    return None


def frame_time(
    clocks: Clocks, server_ns: int | None
) -> tuple[int | None, tuple[tuple[str, str], ...]]:
    """Return the time of a frame, by the rule of the module.

    Args:
        clocks: of the gateways.
        server_ns: time at which the network server received it; None: the message has none.

    Returns: The time, None if there is none; and the ignored gateways, each with the time that it
        reported.
    """
    dated = [at for _, at in clocks.said if is_dated(at)]
    server = server_ns if server_ns is not None and is_dated(server_ns) else None
    if server is None:
        # The later of two: a clock that is wrong shows the past.
        middle = sorted(dated)[len(dated) // 2] if dated else None
        sound = [at for at in dated if middle is not None and abs(at - middle) <= _NEAR_NS]
    else:
        before = [at for at in dated if at <= server + _AHEAD_NS]
        sound = [at for at in before if at >= server - _NEAR_NS]
        sound = sound or [at for at in before if at >= server - _STORED_NS]
    if not sound and server is None:  # all agree on another age, or none has a time
        every = [at for _, at in clocks.said]
        every += [] if server_ns is None else [server_ns]
        sound = [at for at in every if -_LIMIT_NS <= at < _LIMIT_NS]
    time_ns = min(sound, default=server)
    off = [(name, _shown(at)) for name, at in clocks.said if at not in sound]
    return time_ns, (*off, *clocks.unread)


def _shown(time_ns: int) -> str:
    """Return a time as readable text, for any year."""
    seconds = np.clip(time_ns // _NS, -62_135_596_800, 253_402_300_799)
    return f"{np.datetime64(int(seconds), 's')}Z"
