"""The connection to the broker: a session that outlives it, and acknowledgements of its messages.

It uses MQTT 5 with a session that never expires, and 3.1.1 if the broker does not support 5. A
PUBACK belongs to the connection that delivered the message. So connections are numbered, and the
bridge does not acknowledge messages from an earlier connection. The broker sends them again. At
most ``2 * batch`` messages are under way (``ReceiveMaximum``). If nothing is acknowledged, the
broker stops sending by itself, and queues.

Messages arrive on the client's thread. It never blocks, because it has to answer pings, and the
subscription's confirmation comes after a session's backlog. The bound is the number that the broker
has under way: 65,535 at most. Messages with QoS 0 have no guarantee. They are dropped and counted
while the bridge accepts nothing.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from decaysketch.client import ClientError
from decaysketch.client.trust import certificate_fault
from decaysketch.ingest.bridge.config import Config
from decaysketch.ingest.bridge.metrics import Metrics
from decaysketch.ingest.bridge.translating import Arrived
from decaysketch.ingest.documents import Message

__all__ = ["Connection", "Tag"]

_log = logging.getLogger(__name__)

_KEEPALIVE_S = 30
_NEVER = 0xFFFFFFFF  # a session expires
_UNSUPPORTED_VERSION = 132
_QOS = 1


class Tag(NamedTuple):
    """The key by which a message is acknowledged."""

    generation: int
    mid: int
    qos: int
    at: float


class Connection:
    """A session with the broker.

    Args:
        config: the bridge's configuration.
        metrics: counts redelivered and retained messages.
        passing: only inspect messages: the session has its own name and ends with the connection,
            and nothing is acknowledged.
    """

    def __init__(self, config: Config, metrics: Metrics, *, passing: bool = False) -> None:
        self._config = config
        self._metrics = metrics
        self._passing = passing
        self._messages: queue.SimpleQueue[Arrived] = queue.SimpleQueue()
        self._generation = 0
        self._connected = False
        self._lock = threading.Lock()
        self._told = threading.Event()
        self._fault: str | None = None
        self._granted: list[int] = []
        self._client = self._make(MQTTProtocolVersion.MQTTv5)

    def _make(self, version: MQTTProtocolVersion) -> mqtt.Client:
        config = self._config.broker
        client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=f"{config.client_id}-look" if self._passing else config.client_id,
            protocol=version,
            clean_session=None if version == MQTTProtocolVersion.MQTTv5 else self._passing,
            manual_ack=True,
        )
        if config.username is not None:
            client.username_pw_set(config.username, self._config.password())
        if config.secured:
            client.tls_set(ca_certs=None if config.ca_file is None else str(config.ca_file))
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_subscribe = self._on_subscribe
        client.reconnect_delay_set(1, 60)
        self._version = version
        return client

    def open(self, timeout_s: float) -> None:
        """Connect and subscribe. Afterwards, broken connections are restored automatically.

        Raises:
            ClientError: the broker rejects the connection, or does not respond in time.
        """
        self._begin(timeout_s)
        if self._reason == _UNSUPPORTED_VERSION:
            _log.warning(
                "the broker does not support MQTT 5, so it decides how many messages are in flight"
            )
            self.close()
            self._client = self._make(MQTTProtocolVersion.MQTTv311)
            self._begin(timeout_s)
        if self._fault is not None:
            self.close()
            raise ClientError(f"the broker {self._config.broker.broker} {self._fault}")

    def _begin(self, timeout_s: float) -> None:
        config = self._config.broker
        self._told.clear()
        self._fault, self._reason = None, 0
        given: dict[str, Any] = {}
        if self._version == MQTTProtocolVersion.MQTTv5:
            asked = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            if not self._passing:
                asked.SessionExpiryInterval = _NEVER
            asked.ReceiveMaximum = min(65_535, 2 * config.batch)
            given = {"clean_start": self._passing, "properties": asked}
        try:
            self._client.connect(config.host, config.port, _KEEPALIVE_S, **given)
        except OSError as fault:
            self._fault = f"cannot be reached: {certificate_fault(fault) or fault}"
            return
        self._client.loop_start()
        if not self._told.wait(timeout_s):
            self._fault = f"did not respond within {timeout_s:g} s"

    def _on_connect(
        self, client: mqtt.Client, _user: object, flags: Any, reason: Any, _properties: object
    ) -> None:
        if reason.is_failure:
            self._reason = reason.value
            self._fault = f"rejects the connection: {reason}"
            _log.warning("the broker rejects the connection: %s", reason)
            self._told.set()
            return
        with self._lock:
            self._generation += 1
            self._connected = True
        self._metrics.connected.set(1)
        self._metrics.session_present.set(int(flags.session_present))
        _log.info("connected; the broker %s the session",
                  "knew" if flags.session_present else "did not know")  # fmt: skip
        if self._version == MQTTProtocolVersion.MQTTv5:
            options = SubscribeOptions(
                qos=_QOS, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB
            )
            client.subscribe([(each, options) for each in self._config.broker.filters])
        else:
            client.subscribe([(each, _QOS) for each in self._config.broker.filters])

    def _on_subscribe(
        self, _client: mqtt.Client, _user: object, _mid: int, reasons: Any, _properties: object
    ) -> None:
        for asked, reason in zip(self._config.broker.filters, reasons, strict=False):
            if reason.is_failure:
                self._fault = f"rejects the subscription to {asked!r}: {reason}"
                _log.error("the broker rejects the subscription to %r: %s", asked, reason)
            elif reason.value < _QOS:
                _log.warning(
                    "the broker grants QoS %d for %r: messages are lost while the bridge is "
                    "disconnected",
                    reason.value, asked,
                )  # fmt: skip
            else:
                _log.info("subscribed to %s", asked)
        self._told.set()

    def _on_disconnect(
        self, _client: mqtt.Client, _user: object, _flags: object, reason: Any, _more: object
    ) -> None:
        with self._lock:
            self._connected = False
        self._metrics.connected.set(0)
        if reason.is_failure:
            _log.warning("disconnected: %s", reason)

    def _on_message(self, _client: mqtt.Client, _user: object, message: mqtt.MQTTMessage) -> None:
        self._metrics.redelivered.inc(message.dup)
        self._metrics.retained.inc(message.retain)
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = "\N{REPLACEMENT CHARACTER}"
        tag = Tag(self._generation, message.mid, message.qos, time.monotonic())
        arrived = Arrived(
            Message(bytes(message.payload), topic, time.time_ns()), message.retain, tag
        )
        if message.qos == 0 and self._messages.qsize() >= 2 * self._config.broker.batch:
            self._metrics.lost.inc()
            return
        self._metrics.unacked.inc()
        self._messages.put(arrived)  # never waits, so the client reads the next message

    def gather(self, stopped: Callable[[], bool]) -> list[Arrived]:
        """Return up to a batch of messages, in order of arrival, that arrived within the wait after
        the first. Return none if none arrives for a moment.
        """
        config = self._config.broker
        try:
            got = [self._messages.get(timeout=0.2)]
        except queue.Empty:
            return []
        end = time.monotonic() + config.wait_ms / 1000
        while len(got) < config.batch and not stopped():
            try:
                got.append(self._messages.get(timeout=max(0.0, end - time.monotonic())))
            except queue.Empty:
                break
        return got

    def acknowledge(self, arrived: list[Arrived]) -> int:
        """Acknowledge the messages of the present connection, in their order, and return their
        number.
        """
        count = 0
        for each in arrived:
            tag = each.tag
            assert isinstance(tag, Tag)
            with self._lock:
                if tag.qos and self._connected and tag.generation == self._generation:
                    self._client.ack(tag.mid, tag.qos)
                    count += 1
        self._metrics.unacked.dec(len(arrived))
        return count

    def close(self) -> None:
        """End the connection. The session stays."""
        self._client.disconnect()
        self._client.loop_stop()
