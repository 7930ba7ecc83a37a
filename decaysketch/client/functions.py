"""FunctionSensor: one source of a function across sources in an aggregator.

It counts keys in an ECM-sketch and exchanges messages over HTTP. While its counters stay within the
bound that the aggregator gave it, it polls for messages once per second. Any request or response
may be lost or repeated. Call :meth:`FunctionSensor.step` again and again.

Where messages would cost more than events, the aggregator asks its sources to post. Then each step
posts the sketch if it changed. A :class:`~decaysketch.client.Sensor` of the same source may do
that instead: it receives every event, keeps it on disk, and is flushed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import httpx2
import numpy as np
import numpy.typing as npt

from decaysketch.client.requesting import fields_of
from decaysketch.errors import ParameterError
from decaysketch.monitor.functions import FunctionSource, FunctionSpec

if TYPE_CHECKING:
    from decaysketch.client.sensor import Sensor

__all__ = ["FunctionSensor"]

_MOST_EXCHANGES: Final = 4  # in one step: a round takes two
_POLL_S: Final = 1.0  # between exchanges without a message from this source
_MOST_ARRIVALS: Final = 10_000  # between reports to the aggregator, if sketches are posted
_MOST_KEYS: Final = 1 << 17  # that are remembered
_SKETCH: Final = {"content-type": "application/octet-stream"}


class FunctionSensor:
    """A source of a function, for one thread.

    Args:
        client: an httpx2 client with the aggregator's base URL and the API key.
        stream: name of the function's stream.
        function: name of the function.
        source: name of this source, one of the function's.
        sketch: counts this source's keys, with the stream's parameters and this source's name.
            Update it through this object.
        other: for an inner product, the sketch of the second stream.
        sensors: started sensors of this source, one for each sketch. They replace posts by this
            object. They receive every event, so the streams have them in any case.

    Raises:
        ParameterError: another number of sensors.

    Example::

        with httpx2.Client(base_url=url, headers={"authorization": f"Bearer {key}"}) as client:
            sketch = ECMSketch(params, source="north")
            site = FunctionSensor(client, "talkers", "skew", "north", sketch)
            while True:
                site.update(*events_since_then())
                site.step(int(time.time()))
                time.sleep(0.5)
    """

    def __init__(
        self, client: httpx2.Client, stream: str, function: str, source: str, sketch: Any,
        *, other: Any = None, sensors: Sequence[Sensor] = (),
    ) -> None:  # fmt: skip
        self._client, self._stream, self._source = client, stream, source
        self._path = f"{_path_of(stream)}/functions/{quote(function, safe='')}/exchange"
        self._sketches = [sketch] if other is None else [sketch, other]
        if sensors and len(sensors) != len(self._sketches):
            raise ParameterError(
                f"sensors has {len(sensors)} entries; expected {len(self._sketches)}, as sketches"
            )
        self._sensors = sensors
        self._arrived: list[npt.NDArray[np.uint64]] = []
        # All keys that came. None: not known.
        self._keys: set[int] | None = None if sketch.seen else set()
        self._arrivals = self._posted = 0  # that the aggregator does not know
        self._unposted = [True] * len(self._sketches)
        self._inc = 0
        self._epoch: int | None = None
        self._posts, self._first = False, True
        self._exchanged_s = -math.inf
        self._spec: FunctionSpec | None = None
        self._site: FunctionSource | None = None

    @property
    def spec(self) -> FunctionSpec | None:
        """The function's definition. None before the first exchange."""
        return self._spec

    @property
    def settled(self) -> bool:
        """Whether no report from this source is under way, as of the last step. While all sources
        are settled, a certain result is about their present counters.
        """
        if self._posts:
            return not any(self._unposted)
        return self._site is not None and self._site.settled

    def update(
        self, keys: Any, timestamps: npt.ArrayLike, weights: npt.ArrayLike = 1, *, of: int = 0
    ) -> None:
        """Count events.

        Args:
            keys, timestamps, weights: as for :meth:`decaysketch.ecm.ECMSketch.update`.
            of: 1 for the second stream of an inner product.

        Raises:
            ParameterError, ObservationError: invalid columns. Nothing was counted.
        """
        sketch = self._sketches[of]
        sketch.update(keys, timestamps, weights)
        if self._sensors:
            self._sensors[of].update_keys(keys, timestamps, weights)
        self._unposted[of] = True
        self._arrived.append(sketch.params.words_of(keys))
        if self._keys is not None:
            self._keys.update(self._arrived[-1].tolist())
            if len(self._keys) > _MOST_KEYS:
                self._keys = None
        self._arrivals += int(np.size(timestamps))

    def step(self, now: int, *, poll: bool = False) -> bool:
        """Read the counters at a time, and exchange messages if there are any. Where the aggregator
        asks for posts, post a changed sketch.

        Call it after updates, and about once per second without them: windows end, and the
        aggregator only responds. If this source has no message, a step sends a request once per
        second.

        Args:
            now: time in the stream's unit.
            poll: send a request in any case, because the aggregator has a message for this source.

        Returns:
            False if the aggregator was unreachable or requested a pause. Call again later.

        Raises:
            PostRefusedError: the function does not exist, this source takes no part, or the key
                does not cover it or its streams.
            ParameterError: the sketch does not have the stream's parameters.
        """
        if self._site is None and self._exchange([]) is None:
            return False
        if self._posts:
            return self._post()
        self._look(now)
        for _ in range(_MOST_EXCHANGES):
            assert self._site is not None
            said = self._site.due(time.monotonic())
            if not (said or poll) and time.monotonic() - self._exchanged_s < _POLL_S:
                break
            answered = self._exchange(said)
            if answered is None:
                return False
            if self._posts or not (said or answered):
                break
        return True

    def _post(self) -> bool:
        """Post changed sketches. An exchange after that means that everything is posted."""
        assert self._spec is not None
        streams = (self._stream, self._spec.other or "")
        for of, unposted in enumerate(self._unposted):
            if unposted:
                if not self._post_one(of, streams[of]):
                    return False
                self._unposted[of] = False
                self._posted += 1
        early = time.monotonic() - self._exchanged_s < self._spec.lease_s / 4
        if early and self._arrivals < _MOST_ARRIVALS:
            return True
        return self._exchange([]) is not None

    def _post_one(self, of: int, stream: str) -> bool:
        if self._sensors:
            return self._sensors[of].flush().done
        path, body = f"{_path_of(stream)}/sketches", self._sketches[of].to_bytes()
        params, expected = {"source": self._source}, {"stream": stream, "source": self._source}
        sent = {"params": params, "content": body, "headers": _SKETCH}
        return fields_of(self._client, "POST", path, expected, **sent) is not None

    def _look(self, now: int) -> None:
        assert self._site is not None
        assert self._spec is not None
        grids = [sketch.grid(self._spec.decay, now=now) for sketch in self._sketches]
        if self._first and self._site.unreported is not None:
            # Keys that were counted before this epoch may be frequent without coming again.
            heavy = (
                self._sketches[0]
                .heavy_keys(None, self._spec.decay, now=now, threshold=self._site.unreported)
                .keys
            )
            if self._keys is not None:  # others only share all cells with heavy ones
                heavy = np.array([x for x in heavy.tolist() if x in self._keys], np.uint64)
            self._arrived.append(heavy)
        self._first = False
        arrived = np.concatenate([np.zeros(0, np.uint64), *self._arrived])
        self._site.look(grids, arrived)
        self._arrived.clear()

    def _exchange(self, messages: list[dict[str, Any]]) -> int | None:
        """Send messages, and accept those for this source. Return their number. None: it is unknown
        whether the aggregator received any.
        """
        body = {
            "epoch": self._epoch, "messages": messages, "arrivals": self._arrivals,
            "posts": self._posted,
        }  # fmt: skip
        found = fields_of(
            self._client, "POST", self._path, {}, params={"source": self._source}, json=body
        )
        try:
            if found is None:
                return None
            if found.get("spec") is not None:
                self._define(found["epoch"], found["spec"], posts=found["posts"])
                return 0
            self._arrivals = self._posted = 0
            self._exchanged_s = time.monotonic()
            assert self._site is not None
            self._site.receive(found["messages"], time.monotonic())
        except (KeyError, TypeError):
            return None  # a proxy has answered
        return len(found["messages"])

    def _define(self, epoch: int, form: dict[str, Any], *, posts: bool) -> None:
        """Begin under a definition."""
        spec = FunctionSpec.from_dict(form)
        if (spec.kind == "inner_product") != (len(self._sketches) == 2):
            raise ParameterError(
                f"the function is of kind {spec.kind}, and there are {len(self._sketches)} "
                "sketches; expected two for an inner_product, one otherwise"
            )
        self._inc = max(self._inc + 1, time.time_ns() // 1000)
        leaf = self._sketches[0].grid(spec.decay).leaf
        self._site = FunctionSource(spec, leaf, self._source, self._inc)
        self._spec, self._epoch, self._posts = spec, epoch, posts
        self._exchanged_s, self._first = -math.inf, True


def _path_of(stream: str) -> str:
    return f"/v1/streams/{quote(stream, safe='')}"
