"""The derived streams of a bridge's streams, queried when the bridge starts.

A stream's description names its derived streams. The description of a derived stream names the id
parts that identify a device (:class:`~decaysketch.ingest.views.ViewOf`). The spool stores both,
for a start while the aggregator is away. The data are untrusted, so no name in them leads out of
the spool.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx2

from decaysketch.client import ClientError
from decaysketch.client.access import bearer
from decaysketch.client.files import write_whole
from decaysketch.client.retrying_client import Asking, UnreachableError
from decaysketch.client.trust import trust
from decaysketch.errors import ParameterError
from decaysketch.ingest.bridge.config import Config
from decaysketch.ingest.views import ViewOf

__all__ = ["Told", "Views", "ask", "keep", "learn", "look_at", "names_of"]

_log = logging.getLogger(__name__)

_ATTEMPTS, _TIMEOUT_S = 4, 5.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MOST = 16  # views of a stream

Views = dict[str, dict[str, ViewOf]]
"""Of each stream its views, by name."""


class Told(NamedTuple):
    """The aggregator's description of a stream's derived streams.

    Attributes:
        views: those that can be fed, by name.
        faults: reasons why the others cannot be fed.
    """

    views: dict[str, ViewOf]
    faults: dict[str, str]


def ask(asking: Asking, stream: str) -> Told:
    """Query the aggregator for a stream's derived streams.

    Raises:
        UnreachableError: there was no response about the stream or a derived stream.
        ClientError: the aggregator rejects the query for the stream.
    """
    told = Told({}, {})
    for name in names_of(_describe(asking, stream), stream):
        try:
            told.views[name] = look_at(asking, name, stream)
        except UnreachableError:
            raise
        except (ClientError, ParameterError) as fault:
            told.faults[name] = str(fault)
    return told


def names_of(fields: Mapping[str, Any], stream: str) -> list[str]:
    """Return the names of derived streams in the description of a stream.

    Raises:
        ClientError: they are not names.
    """
    names = fields.get("views", [])
    if (
        type(names) is list
        and len(names) <= _MOST
        and all(type(name) is str and _is_of(name, stream) for name in names)
    ):
        return names
    raise ClientError(f"the server returned as views of stream {stream!r}: {str(names)[:200]!r}")


def _is_of(name: str, stream: str) -> bool:
    return _NAME.fullmatch(name) is not None and name.startswith(f"{stream}.")


def look_at(asking: Asking, name: str, stream: str) -> ViewOf:
    """Return a derived stream's input.

    Raises:
        ClientError: the aggregator does not return it, or rejects the query.
        ParameterError: the description is invalid, or is of another stream.
    """
    view = ViewOf.from_dict(_describe(asking, name).get("view_of"))
    if view.of != stream:
        raise ParameterError(f"it is derived from {view.of!r}; expected {stream!r}")
    return view


def _describe(asking: Asking, stream: str) -> dict[str, Any]:
    path = f"/v1/streams/{quote(stream, safe='')}"
    return asking.fields("GET", path, {"name": stream}, params={"sources": "0"})


def learn(config: Config, kept: Path) -> Views:
    """Return the derived streams as the aggregator describes them. If the aggregator is
    unreachable, return those in the file.

    Log the derived streams that the bridge does not feed.

    Args:
        config: the bridge's configuration.
        kept: file with the aggregator's last description.

    Raises:
        ParameterError: the file contains no description.
        OSError: the file cannot be read.
    """
    before, found = _read(kept), Views()
    key, away = config.api_key(), False
    headers = {} if key is None else {"authorization": bearer(key, "server.key_file")}
    verify = trust(config.server.ca_file, "server.ca_file")
    with httpx2.Client(
        base_url=config.server.url, headers=headers, timeout=_TIMEOUT_S, verify=verify
    ) as client:
        asking = Asking(client, attempts=_ATTEMPTS)
        for stream in config.streams:
            known = before.get(stream, {})
            told = Told(known, {})
            try:
                if not away:
                    told = ask(asking, stream)
            except UnreachableError as fault:
                away = True
                _log.warning(
                    "the list of derived streams is not available, so the bridge feeds "
                    "those of its last start: %s",
                    fault,
                )
            except ClientError as fault:
                _log.warning(
                    "stream %s feeds the derived streams of the last start: %s", stream, fault
                )
            for name, reason in told.faults.items():
                _log.warning("derived stream %s is not fed: %s", name, reason)
            for name in known.keys() - told.views.keys() - told.faults.keys():
                _log.warning(
                    "derived stream %s no longer exists; its waiting rows stay in the spool", name
                )
            if told.views:
                found[stream] = told.views
                _log.info("stream %s feeds its derived streams %s", stream, _listed(told.views))
    return found


def _listed(views: Mapping[str, ViewOf]) -> str:
    return ", ".join(sorted(views)) or "none"


def keep(views: Views, kept: Path) -> None:
    """Store the derived streams, once each spool has its sketch configuration.

    Raises:
        OSError: a disk error.
    """
    if views != _read(kept):
        said = {
            stream: {name: view.to_dict() for name, view in found.items()}
            for stream, found in views.items()
        }
        write_whole(kept, json.dumps(said, indent=1).encode())


def _read(kept: Path) -> Views:
    try:
        text = kept.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        return {
            stream: {name: ViewOf.from_dict(said) for name, said in found.items()}
            for stream, found in json.loads(text).items()
        }
    except (ValueError, AttributeError) as fault:
        raise ParameterError(
            f"{kept} does not list the derived streams ({fault}); remove it, and start while the "
            "aggregator answers"
        ) from None
