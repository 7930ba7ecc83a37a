"""FunctionSensor: one source of a function across sources in an aggregator.

It counts keys in an ECM-sketch, exchanges messages over HTTP, and is silent while its counters stay
within the bound that the aggregator gave it. Any request or response may be lost or repeated. Call
:meth:`FunctionSensor.step` again and again.
"""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

import httpx2
import numpy as np
import numpy.typing as npt

from decaysketch.client.requesting import fields_of
from decaysketch.errors import ParameterError
from decaysketch.monitor.functions import FunctionSource, FunctionSpec

__all__ = ["FunctionSensor"]

_MOST_EXCHANGES = 4  # in one step: a round takes two


class FunctionSensor:
    """A source of a function, for one thread.

    Args:
        client: an httpx2 client with the aggregator's base URL and the API key.
        stream: name of the function's stream.
        function: name of the function.
        source: name of this source, one of the function's.
        sketch: counts this source's keys, with the stream's parameters. Update it through this
            object.
        other: for an inner product, the sketch of the second stream.

    Example::

        with httpx2.Client(base_url=url, headers={"authorization": f"Bearer {key}"}) as client:
            site = FunctionSensor(client, "talkers", "skew", "north", ECMSketch(params))
            while True:
                site.update(*events_since_then())
                site.step(int(time.time()))
                time.sleep(0.5)
    """

    def __init__(
        self, client: httpx2.Client, stream: str, function: str, source: str, sketch: Any,
        *, other: Any = None,
    ) -> None:  # fmt: skip
        self._client, self._source = client, source
        self._path = (
            f"/v1/streams/{quote(stream, safe='')}/functions/{quote(function, safe='')}/exchange"
        )
        self._sketches = [sketch] if other is None else [sketch, other]
        self._arrived: list[npt.NDArray[np.uint64]] = []
        self._arrivals = 0  # that the aggregator does not know
        self._inc = 0
        self._epoch: int | None = None
        self._spec: FunctionSpec | None = None
        self._site: FunctionSource | None = None

    @property
    def spec(self) -> FunctionSpec | None:
        """The function's definition. None before the first exchange."""
        return self._spec

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
        self._arrived.append(sketch.params.words_of(keys))
        self._arrivals += int(np.size(timestamps))

    def step(self, now: int) -> bool:
        """Read the counters at a time, and exchange messages if there are any.

        Call it after updates, and about once per second without them: windows end, and the
        aggregator only responds.

        Args:
            now: time in the stream's unit.

        Returns:
            False if the aggregator was unreachable or requested a pause. Call again later.

        Raises:
            PostRefusedError: the function does not exist, this source takes no part, or the key
                does not cover it.
            ParameterError: the sketch does not have the stream's parameters.
        """
        if self._site is None and self._exchange([]) is None:
            return False
        self._look(now)
        for _ in range(_MOST_EXCHANGES):
            assert self._site is not None
            said = self._site.due(time.monotonic())
            answered = self._exchange(said)
            if answered is None:
                return False
            if not said and not answered:
                break
        return True

    def _look(self, now: int) -> None:
        assert self._site is not None
        assert self._spec is not None
        grids = [sketch.grid(self._spec.decay, now=now) for sketch in self._sketches]
        arrived = np.concatenate([np.zeros(0, np.uint64), *self._arrived])
        self._site.look(grids, arrived)
        self._arrived.clear()

    def _exchange(self, messages: list[dict[str, Any]]) -> int | None:
        """Send messages, and accept those for this source. Return their number. None: it is unknown
        whether the aggregator received any.
        """
        body = {"epoch": self._epoch, "messages": messages, "arrivals": self._arrivals}
        found = fields_of(
            self._client, "POST", self._path, {}, params={"source": self._source}, json=body
        )
        try:
            if found is None:
                return None
            if found.get("spec") is not None:
                self._define(found["epoch"], found["spec"])
                return 0
            self._arrivals = 0
            assert self._site is not None
            self._site.receive(found["messages"], time.monotonic())
        except (KeyError, TypeError):
            return None  # somebody else has answered, on the way
        return len(found["messages"])

    def _define(self, epoch: int, form: dict[str, Any]) -> None:
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
        self._spec, self._epoch = spec, epoch
