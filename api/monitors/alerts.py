"""The message about an alert: the JSON that Alertmanager sends to webhooks (version 4), so the same
receivers accept it. Two additional members, ``id`` and ``sequence``, identify duplicates.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from api.service.group_labels import label_name, label_of
from decaysketch.monitor import Alert, State, group_name

__all__ = ["message"]

_NEVER = "0001-01-01T00:00:00Z"  # how Alertmanager says that an alert has not ended


def message(
    identity: str,
    sequence: int,
    names: tuple[str, str],
    alerts: tuple[Alert, Alert],
    found: tuple[State, str],
    group: Mapping[str, Any] | None = None,
) -> bytes:
    """Return the body of a webhook.

    Args:
        identity: names the alert, never another one.
        sequence: number of this message of it.
        names: of the stream and the monitor.
        alerts: the alert before and after. It fires in one of them.
        found: the state of the monitor, and its explanation.
        group: the keys of the group that the alert is about. They become labels.
    """
    (stream, monitor), (before, after), (state, explanation) = names, alerts, found
    firing = after.phase == "firing"
    status = "firing" if firing else "resolved"
    labels = {"alertname": monitor, "stream": stream}
    for key, value in (group or {}).items():
        labels[label_name(key, labels)] = label_of(value)
    said: dict[str, Any] = state.to_dict()
    annotations = {
        "summary": f"{monitor} of stream {stream}{_group(group)}: {status}",
        "description": explanation,
        **{
            name: str(said[name])
            for name in ("value", "lower", "upper", "threshold")
            if said[name] is not None
        },
    }
    alert = {
        "status": status,
        "labels": labels,
        "annotations": annotations,
        "startsAt": _utc(after.since if firing else before.since),
        "endsAt": _NEVER if firing else _utc(after.since),
        "generatorURL": "",
        "fingerprint": hashlib.sha256(identity.encode()).hexdigest()[:16],
    }
    return json.dumps(
        {
            "version": "4",
            "groupKey": f"{stream}/{monitor}{_group(group)}",
            "truncatedAlerts": 0,
            "status": status,
            "receiver": "decaysketch",
            "groupLabels": labels,
            "commonLabels": labels,
            "commonAnnotations": annotations,
            "externalURL": "",
            "alerts": [alert],
            "id": identity,
            "sequence": sequence,
        }
    ).encode()


def _group(group: Mapping[str, Any] | None) -> str:
    return "" if group is None else f", {group_name(group)}"


def _utc(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat().replace("+00:00", "Z")
