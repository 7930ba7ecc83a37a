"""Clients that send observations from a device or gateway to an aggregator.

Both classes are transports around one :class:`~decaysketch.client.core.Core`: ``Sensor`` sends from
its own thread, ``AsyncSensor`` from a task.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

import httpx2
import numpy.typing as npt

from decaysketch.client.access import bearer
from decaysketch.client.core import Core, Request, Wait
from decaysketch.client.delivery import Answer
from decaysketch.client.errors import ClientError
from decaysketch.client.event_stream import Follower, follow
from decaysketch.client.policy import Policy
from decaysketch.client.shared_client import SharedClient
from decaysketch.client.status import Event, Status
from decaysketch.client.trust import trust
from decaysketch.errors import ParameterError
from decaysketch.families import Recipe

__all__ = ["AsyncSensor", "Sensor", "SeriesColumns"]

_CONNECT_S = 10.0
_LONGEST_ANSWER_BYTES = 16 * 1024 * 1024  # the description of a stream lists its sources


class SeriesColumns(TypedDict, total=False):
    """Columns that only streams of the family ``series`` have, as in ``SeriesSketch.update``."""

    entities: npt.ArrayLike
    starts: npt.ArrayLike
    attributes: Any


class _Face:
    """Common parts of both classes: everything except the network."""

    _client: Any

    @staticmethod
    def _make_client(**options: Any) -> Any:
        raise NotImplementedError

    def __init__(
        self,
        url: str,
        stream: str,
        source: str,
        *,
        spool: str | os.PathLike[str],
        api_key: str | None = None,
        numbered: bool = False,
        recipe: Recipe | None = None,
        id_key: bytes | None = None,
        monitors: bool = False,
        flush_rows: int = Policy.flush_rows,
        flush_bytes: int = Policy.flush_bytes,
        flush_age_s: float = Policy.flush_age_s,
        timeout_s: float = 30.0,
        max_spool_bytes: int = Policy.max_spool_bytes,
        max_post_bytes: int = Policy.max_post_bytes,
        backoff_s: float = Policy.backoff_s,
        max_backoff_s: float = Policy.max_backoff_s,
        on_event: Callable[[Event], None] | None = None,
        trust_env: bool = True,
        ca_file: str | os.PathLike[str] | None = None,
        transport: Any = None,
    ) -> None:
        """Open the spool. The sensor sends nothing before it is started.

        Args:
            url: the aggregator, such as ``http://localhost:8000``.
            stream: the stream name. The stream must exist.
            source: the source name. No other sender may use it in the stream.
            spool: a directory for this sensor alone. It is created if it does not exist.
            api_key: sent as a bearer token.
            numbered: for the families sum and median: the sensor numbers the elements itself and
                posts number intervals. The aggregator accepts each interval exactly once.
            recipe: the stream's sketch configuration, if it is known. Otherwise the sensor requests
                it from the server once, and stores it in the spool.
            id_key: the stream's secret, if its ids are keyed by one.
            monitors: take part in the stream's monitors. The sensor posts as soon as it holds back
                more than they allow. ``flush_*`` are only upper limits, so choose large ones. See
                ``docs/client.md``.
            flush_rows: make a delta from so many observations,
            flush_bytes: or of so many bytes (by the last delta's bytes for an observation),
            flush_age_s: or when the first observation was added so many seconds ago.
            timeout_s: seconds to wait for one response, and in ``start``, ``flush`` and ``close``.
                A connection may take at most 10 s of it.
            max_spool_bytes: the sensor rejects updates when the spool has this size.
            max_post_bytes: waiting deltas are merged up to this size. Give less if a proxy on the
                way accepts less, such as a reverse proxy's 1 MB.
            backoff_s, max_backoff_s: see :class:`decaysketch.client.delivery.Backoff`.
            on_event: called with each :class:`~decaysketch.client.Event`, from the sending thread.
            trust_env: whether to read proxies and certificates from the environment.
            ca_file: PEM file with the only certificate authorities to trust, for a private one.
            transport: an httpx2 transport that replaces the network.

        Raises:
            SpoolInUseError: another sensor has the spool.
            ClientError: the spool belongs to another stream or source.
            ParameterError: an argument outside its domain.
        """
        if not timeout_s > 0:
            raise ParameterError(f"timeout_s is {timeout_s!r}; expected more than 0")
        policy = Policy(
            flush_rows=flush_rows,
            flush_bytes=flush_bytes,
            flush_age_s=flush_age_s,
            max_spool_bytes=max_spool_bytes,
            max_post_bytes=max_post_bytes,
            backoff_s=backoff_s,
            max_backoff_s=max_backoff_s,
        )
        self._timeout_s = timeout_s
        headers = {"accept-encoding": "identity", "user-agent": "decaysketch"}
        if api_key is not None:
            headers["authorization"] = bearer(api_key, "api_key")
        self._connect_s = min(timeout_s, _CONNECT_S)
        self._options = {
            "base_url": url, "headers": headers, "trust_env": trust_env, "transport": transport,
            "verify": trust(ca_file, "ca_file"),
            "timeout": httpx2.Timeout(timeout_s, connect=self._connect_s),
        }  # fmt: skip
        # Events are followed by asyncio: they come over a transport that it can use.
        async_able = transport is None or isinstance(transport, httpx2.AsyncBaseTransport)
        self._follows = monitors and async_able
        self._core = Core(
            stream, source, spool, policy, numbered=numbered, recipe=recipe, id_key=id_key,
            monitors=monitors, on_event=on_event,
        )  # fmt: skip
        try:
            self._client = self._make_client(**self._options)
        except BaseException:
            self._core.close()
            raise
        self._prepare()

    def _prepare(self) -> None:
        raise NotImplementedError

    @property
    def recipe(self) -> Recipe:
        """The stream's sketch configuration. Pass its ``params`` to ``ds.observation_ids``.

        Raises:
            StreamUnknownError: the client has never been started on this spool.
        """
        return self._core.recipe

    @property
    def next_number(self) -> int | None:
        """Number of the next element, if the client numbers them. After a crash, read your log from
        here.
        """
        return self._core.status().next_number

    def _update(
        self,
        values: npt.ArrayLike | None,
        weights: npt.ArrayLike,
        timestamps: npt.ArrayLike,
        ids: npt.ArrayLike,
        now: int | None,
        not_after: int | None,
        series: SeriesColumns,
    ) -> int:
        arguments = {"values": values, "weights": weights, "timestamps": timestamps, "ids": ids}
        given = _with_given(arguments, now=now, not_after=not_after, **series)
        return self._core.update(given, named_by="ids")

    def _update_elements(
        self,
        values: npt.ArrayLike,
        timestamps: npt.ArrayLike,
        sequence: npt.ArrayLike | None,
        not_after: int | None,
    ) -> int:
        arguments: dict[str, Any] = {"values": values, "timestamps": timestamps}
        given = _with_given(arguments, sequence=sequence, not_after=not_after)
        return self._core.update(given, named_by="sequence")

    def _update_keys(
        self, keys: Any, timestamps: npt.ArrayLike, weights: npt.ArrayLike, not_after: int | None
    ) -> int:
        arguments = {"keys": keys, "timestamps": timestamps, "weights": weights}
        return self._core.update(_with_given(arguments, not_after=not_after), named_by="key")

    def advance(self, now: int) -> None:
        """Set the sketches' clock, in the stream's unit, if the family has one."""
        self._core.advance(now)

    def status(self) -> Status:
        """Return the current status without waiting."""
        return self._core.status()

    @contextlib.contextmanager
    def _unless_closed(self) -> Iterator[None]:
        """Drop the error of a flush that finds the client closed, or its sender at its end."""
        try:
            yield
        except ClientError:
            if self._core.running and not self._core.store.closed:
                raise

    def adopt(self) -> int:
        """Continue with a stream that was created again with other parameters.

        Unsent data were built with the old parameters and move to ``rejected/``.

        Returns:
            The number of deltas that moved.

        Raises:
            ClientError: the stream is not known to have changed.
        """
        return self._core.adopt()


def _with_given(arguments: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return arguments | {name: value for name, value in optional.items() if value is not None}


def _late(timeout_s: float) -> httpx2.ReadTimeout:
    return httpx2.ReadTimeout(f"timeout: no response within {timeout_s:g} s")


def _unreachable(result: Answer | Exception) -> bool:
    """Return whether no connection was made, such as for a wrong address. Then the first start
    stops before its timeout.
    """
    return isinstance(result, httpx2.ConnectError | httpx2.ConnectTimeout)


class _Reading:
    """A response body with bounded length, read within a bounded time."""

    def __init__(self, deadline: float) -> None:
        self.body = bytearray()
        self._deadline = deadline

    def add(self, part: bytes) -> None:
        self.body += part
        if len(self.body) > _LONGEST_ANSWER_BYTES:
            raise httpx2.RemoteProtocolError(
                f"the response is longer than {_LONGEST_ANSWER_BYTES} bytes"
            )
        if time.monotonic() > self._deadline:
            raise httpx2.ReadTimeout("the response took too long")

    def answer(self, status: int, headers: Mapping[str, str]) -> Answer:
        return Answer(
            status, {name.lower(): value for name, value in headers.items()}, bytes(self.body)
        )


class Sensor(_Face):
    """Send observations from one source to one stream, in the background.

    Use it as a context manager: entering starts it, leaving flushes it. Thread-safe.

    Example::

        with Sensor("http://localhost:8000", "ward-7", "gateway-3", spool="spool") as sensor:
            sensor.update([20.5], 1, [1_700_000_000], [17])
    """

    @staticmethod
    def _make_client(**options: Any) -> httpx2.Client:
        return httpx2.Client(**options)

    def _prepare(self) -> None:
        self._shared = SharedClient(self._client)
        self._woken = threading.Event()
        self._core.wake = self._woken.set
        self._progress = threading.Condition()
        self._thread: threading.Thread | None = None
        self._follower: Follower | None = None

    def start(self) -> Self:
        """Read the stream's sketch configuration, unless the spool has it, and start sending.

        With a known configuration, it returns at once. Otherwise it repeats the request until
        ``timeout_s`` if the server answers with an error, and fails at once if the server is
        unreachable.

        Raises:
            StreamUnknownError: the server did not provide it in time, or is unreachable.
        """
        deadline = time.monotonic() + self._timeout_s
        while not self._core.known:
            look = self._core.look()
            result = self._send_until(look, deadline)
            self._core.settle(look, result)
            pause = self._core.retry_in_s
            if self._core.known or self._core.paused or _unreachable(result):
                break
            if time.monotonic() + pause > deadline:
                break
            time.sleep(pause)
        _ = self.recipe
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name=f"decaysketch {self._core.source}", daemon=True
            )
            self._core.running = True
            self._thread.start()
            if self._follows:
                self._follower = Follower(
                    self._core, lambda: httpx2.AsyncClient(**self._options), self._connect_s
                )
                self._follower.start()
        return self

    def _run(self) -> None:
        try:
            self._deliver()
        finally:
            self._core.running = False
            self._tell_progress()

    def _deliver(self) -> None:
        while True:
            self._woken.clear()
            step: Request | Wait | None
            try:
                step = self._core.next_step()
                if isinstance(step, Request):
                    self._core.settle(step, self._send(step))
            except Exception as fault:
                step = self._core.stumbled(fault)
            self._tell_progress()
            if step is None:
                return
            if isinstance(step, Wait):
                self._woken.wait(step.seconds)

    def _tell_progress(self) -> None:
        with self._progress:
            self._progress.notify_all()

    def _send_until(self, request: Request, deadline: float) -> Answer | Exception:
        """As ``_send``, with one timeout for all steps. Name resolution has none of its own."""
        results: queue.SimpleQueue[Answer | Exception] = queue.SimpleQueue()
        threading.Thread(target=lambda: results.put(self._send(request)), daemon=True).start()
        try:
            return results.get(timeout=max(deadline - time.monotonic(), 0.0))
        except queue.Empty:
            return _late(self._timeout_s)

    def _send(self, request: Request) -> Answer | Exception:
        reading = _Reading(time.monotonic() + self._timeout_s)
        try:
            with self._shared as client, client.stream(
                request.method, request.path, params=request.params, content=request.content,
                headers=request.headers,
            ) as response:  # fmt: skip
                for part in response.iter_raw():
                    reading.add(part)
            return reading.answer(response.status_code, response.headers)
        except Exception as fault:  # any transport error: no response arrived
            return fault

    def update(
        self,
        values: npt.ArrayLike | None,
        weights: npt.ArrayLike,
        timestamps: npt.ArrayLike,
        ids: npt.ArrayLike,
        *,
        now: int | None = None,
        not_after: int | None = None,
        durable: bool = False,
        **series: Unpack[SeriesColumns],
    ) -> int:
        """Add observations to a stream whose rows have ids. Return their number.

        Never waits for the network. A crash loses observations that are not synced. Pass
        ``durable=True``, or call :meth:`sync` after several updates.

        Args:
            values, weights, timestamps, ids, now, not_after: as in ``update`` of the sketch.
            durable: write to disk before returning.
            series: ``entities``, ``starts`` and ``attributes`` in a stream of family series, as in
                ``update`` of its sketch.

        Raises:
            ObservationError: a row is invalid, or later than the stream accepts by the aggregator's
                clock. The batch was rejected as a whole.
            SpoolFullError: the spool is full. The batch was rejected as a whole.
            ClientError: the stream is of another family, or the client is closed.
            OSError: with ``durable``: the disk failed. The rows are in memory.
        """
        rows = self._update(values, weights, timestamps, ids, now, not_after, series)
        if durable:
            self.sync()
        return rows

    def update_elements(
        self,
        values: npt.ArrayLike,
        timestamps: npt.ArrayLike,
        sequence: npt.ArrayLike | None = None,
        *,
        not_after: int | None = None,
        durable: bool = False,
    ) -> int:
        """Add elements to a stream of family sum or median. Return their number.

        Args:
            values, timestamps, not_after: as in ``update`` of the sampler.
            sequence: the elements' numbers in this source. None if the client numbers them
                (``numbered=True``), starting at :attr:`next_number`.
            durable: write to disk before returning.

        Raises:
            See :meth:`update`.
        """
        rows = self._update_elements(values, timestamps, sequence, not_after)
        if durable:
            self.sync()
        return rows

    def update_keys(
        self,
        keys: Any,
        timestamps: npt.ArrayLike,
        weights: npt.ArrayLike = 1,
        *,
        not_after: int | None = None,
        durable: bool = False,
    ) -> int:
        """Count keys in a stream of family ecm. Return the number of events.

        Each process begins an epoch, and each post contains the epoch's complete state. Choose
        ``flush_rows`` and ``flush_age_s`` accordingly.

        Args:
            keys, timestamps, weights, not_after: as in ``update`` of the collection.
            durable: write to disk before returning.

        Raises:
            See :meth:`update`.
        """
        rows = self._update_keys(keys, timestamps, weights, not_after)
        if durable:
            self.sync()
        return rows

    def sync(self) -> None:
        """Write all observations to disk before returning.

        Raises:
            OSError: the disk failed. The observations stay in memory.
        """
        self._core.sync()

    def flush(self, timeout_s: float | None = None) -> Status:
        """Post all observations and wait for the acknowledgement.

        Tries at once regardless of backoff, unless the server named a time. Returns early if
        delivery is paused.

        Args:
            timeout_s: seconds to wait. None: ``timeout_s`` of the client.

        Returns:
            The status. ``done`` is true if everything was acknowledged (or rejected: ``rejected``).

        Raises:
            ClientError: the client is not running, or ``on_event`` calls this.
            OSError: the disk failed.
        """
        core = self._core
        if not core.running:
            raise ClientError("the sensor is not running")
        if self._is_sender():
            raise ClientError(
                "flush was called in on_event, but the sending thread cannot wait for itself"
            )
        target, attempts = core.seal(), core.attempts
        core.hurry()

        def ended() -> bool:
            stuck = core.paused is not None and core.attempts > attempts
            return core.settled(target) or stuck or not core.running

        with self._progress:
            self._progress.wait_for(ended, self._timeout_s if timeout_s is None else timeout_s)
        return core.status()

    def close(self, timeout_s: float | None = None) -> Status:
        """Flush for this long, stop sending, and release the spool. Unsent data wait there.

        ``on_event`` may call it, and then it does not flush.
        """
        try:
            if self._core.running and not self._is_sender():
                with self._unless_closed():
                    self.flush(timeout_s)
        finally:
            try:
                self._core.close()
            finally:
                self._woken.set()
                if self._follower is not None:
                    self._follower.stop(self._timeout_s)
                if self._thread is not None and not self._is_sender():
                    self._thread.join(self._timeout_s)
                self._shared.close()
        return self._core.status()

    def _is_sender(self) -> bool:
        return threading.current_thread() is self._thread

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class AsyncSensor(_Face):
    """A :class:`Sensor` that sends from a task of the running event loop.

    ``update`` is a plain method that never waits. Threads do the disk I/O. Arguments are those of
    :class:`Sensor`.

    Example::

        async with AsyncSensor("http://localhost:8000", "ward-7", "gw-3", spool="spool") as sensor:
            sensor.update([20.5], 1, [1_700_000_000], [17])
            await sensor.sync()
    """

    @staticmethod
    def _make_client(**options: Any) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(**options)

    def _prepare(self) -> None:
        self._woken = asyncio.Event()
        self._progress = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> Self:
        """See :meth:`Sensor.start`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        while not self._core.known:
            look = self._core.look()
            result: Answer | Exception = _late(self._timeout_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    result = await self._send(look)
            await asyncio.to_thread(self._core.settle, look, result)
            pause = self._core.retry_in_s
            if self._core.known or self._core.paused or _unreachable(result):
                break
            if loop.time() + pause > deadline:
                break
            await asyncio.sleep(pause)
        _ = self.recipe
        if self._task is None:

            def wake() -> None:
                with contextlib.suppress(RuntimeError):  # the loop has ended, and sends no more
                    loop.call_soon_threadsafe(self._woken.set)

            self._core.wake, self._core.running = wake, True
            self._task = asyncio.create_task(self._run())
            if self._follows:
                following = follow(self._core, self._client, self._connect_s)
                self._following = asyncio.create_task(following)
        return self

    async def _run(self) -> None:
        try:
            await self._deliver()
        finally:
            self._core.running = False

    async def _deliver(self) -> None:
        while True:
            self._woken.clear()
            step: Request | Wait | None
            try:
                step = await asyncio.to_thread(self._core.next_step)
                if isinstance(step, Request):
                    result = await self._send(step)
                    await asyncio.to_thread(self._core.settle, step, result)
            except Exception as fault:
                step = await asyncio.to_thread(self._core.stumbled, fault)
            self._progress.set()
            self._progress = asyncio.Event()
            if step is None:
                return
            if isinstance(step, Wait):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(step.seconds):
                        await self._woken.wait()

    async def _send(self, request: Request) -> Answer | Exception:
        reading = _Reading(time.monotonic() + self._timeout_s)
        try:
            async with self._client.stream(
                request.method, request.path, params=request.params, content=request.content,
                headers=request.headers,
            ) as response:  # fmt: skip
                async for part in response.aiter_raw():
                    reading.add(part)
            return reading.answer(response.status_code, response.headers)
        except Exception as fault:  # any transport error: no response arrived
            return fault

    def update(
        self,
        values: npt.ArrayLike | None,
        weights: npt.ArrayLike,
        timestamps: npt.ArrayLike,
        ids: npt.ArrayLike,
        *,
        now: int | None = None,
        not_after: int | None = None,
        **series: Unpack[SeriesColumns],
    ) -> int:
        """See :meth:`Sensor.update`. Durable after :meth:`sync`."""
        return self._update(values, weights, timestamps, ids, now, not_after, series)

    def update_elements(
        self,
        values: npt.ArrayLike,
        timestamps: npt.ArrayLike,
        sequence: npt.ArrayLike | None = None,
        *,
        not_after: int | None = None,
    ) -> int:
        """See :meth:`Sensor.update_elements`. Durable after :meth:`sync`."""
        return self._update_elements(values, timestamps, sequence, not_after)

    def update_keys(
        self,
        keys: Any,
        timestamps: npt.ArrayLike,
        weights: npt.ArrayLike = 1,
        *,
        not_after: int | None = None,
    ) -> int:
        """See :meth:`Sensor.update_keys`. Durable after :meth:`sync`."""
        return self._update_keys(keys, timestamps, weights, not_after)

    async def sync(self) -> None:
        """See :meth:`Sensor.sync`."""
        await asyncio.to_thread(self._core.sync)

    async def flush(self, timeout_s: float | None = None) -> Status:
        """See :meth:`Sensor.flush`."""
        core, task = self._core, self._task
        if task is None or task.done():
            raise ClientError("the sensor is not running")
        attempts = core.attempts
        target = await asyncio.to_thread(core.seal)
        core.hurry()
        try:
            async with asyncio.timeout(self._timeout_s if timeout_s is None else timeout_s):
                while not (
                    core.settled(target)
                    or (core.paused is not None and core.attempts > attempts)
                    or task.done()
                ):
                    progress = asyncio.ensure_future(self._progress.wait())
                    await asyncio.wait([progress, task], return_when=asyncio.FIRST_COMPLETED)
                    progress.cancel()
        except TimeoutError:
            return core.status()
        return core.status()

    async def close(self, timeout_s: float | None = None) -> Status:
        """See :meth:`Sensor.close`."""
        try:
            if self._task is not None and not self._task.done():
                with self._unless_closed():
                    await self.flush(timeout_s)
        finally:
            try:
                await asyncio.to_thread(self._core.close)
            finally:
                self._core.wake = lambda: None
                try:
                    if self._following is not None:
                        self._following.cancel()
                        await asyncio.gather(self._following, return_exceptions=True)
                    if self._task is not None:
                        self._woken.set()
                        await self._task
                finally:
                    await self._client.aclose()
        return self._core.status()

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
