"""What LoRaWAN's network servers have in common.

A frame is named by its device, the session and the counter in it. A device that joins again begins
at 0 in a new session, so that nothing of it is taken for a frame of the old one. What differs
between copies, such as the gateways that heard it or an id of the server's, names nothing.

Of a session nothing else is known than that devices with activation by personalization (ABP) have
one for ever. One whose counter begins anew sends ids that were there: the later reading replaces
the earlier one, unless the map says ``reset``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from decaysketch.ingest.documents import moment
from decaysketch.ingest.mapping import shown
from decaysketch.ingest.paths import ABSENT, Path
from decaysketch.ingest.readings import RefusedError

__all__ = ["clocks_of", "counter_of", "text_of"]


def text_of(path: Path, root: dict[str, Any]) -> str:
    """A text that may be absent, in which case it is empty.

    Raises:
        RefusedError: it is something else.
    """
    found = path.find(root, root, "")
    if found is ABSENT or found is None:
        return ""
    if type(found) is not str:
        raise RefusedError(f"{path.text} is {shown(found)}; expected a text")
    return found


def counter_of(path: Path, root: dict[str, Any]) -> int:
    """The counter of a frame; writers of protobuf's JSON leave a 0 out.

    Raises:
        RefusedError: it is no integer from 0.
    """
    found = path.find(root, root, "")
    if found is ABSENT:
        return 0
    if type(found) is not int or not 0 <= found < 1 << 32:
        raise RefusedError(f"{path.text} is {shown(found)}; expected an integer of 32 bits")
    return found


def clocks_of(
    receptions: Path, gateway: Path, time: Path, root: dict[str, Any]
) -> Iterator[tuple[str, int]]:
    """What the gateways that heard a frame said the time was; few of them have a clock.

    Raises:
        RefusedError: they are no array of objects, or one has a time that is none.
    """
    heard = receptions.find(root, root, "")
    if heard is ABSENT or heard is None:
        return
    if type(heard) is not list:
        raise RefusedError(f"{receptions.text} is {shown(heard)}; expected an array")
    for each in heard:
        said = time.find(root, each, "")
        if said is ABSENT or said is None or said == "":
            continue
        name = gateway.find(root, each, "")
        yield (
            name if type(name) is str else "",
            moment(said, None, f"{receptions.text}[].{time.text}"),
        )
