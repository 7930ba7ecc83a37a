"""Post existing sketches, and prove that the aggregator has them.

:class:`Poster` is for a sketch table as :class:`Sensor` is for an observation stream. It repeats
each request until the response is final, which is harmless because a sketch that arrives twice
changes nothing. Then it reads the aggregator's sketch for a source. With the posted sketch ``s``
and the stored sketch ``h``:

    h = s          exactly the posted data, now or before
    h join s = h   the posted data and more: another client posts there, or earlier data were
                   corrected since
    else           something is missing

State digests decide. Bytes are fetched only if the first equation fails.

A poster also reads a stream's content and posts raw observations.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import quote

import httpx2

from decaysketch.client.delivery import Answer, Outcome, Taken, judge
from decaysketch.client.errors import ClientError
from decaysketch.client.retrying_client import (
    Asking,
    PostRefusedError,
    UnreachableError,
    problem_kind,
)
from decaysketch.errors import CorruptSketchError, IncompatibleSketchError, ParameterError
from decaysketch.families import Recipe, decode, merge, recipe_from_dict

__all__ = [
    "Held",
    "PostRefusedError",
    "Poster",
    "Receipt",
    "UnreachableError",
    "joined",
    "problem_kind",
    "source_name",
]

Held = Literal["equal", "more", "missing"]

_SKETCH = "application/octet-stream"
_SKETCHES = "application/vnd.decaysketch.sketches"
_ARROW = "application/vnd.apache.arrow.stream"
_RECIPE = ("family", "params", "decay")  # fields of a stream's state
_LENGTH_BYTES = 4
_MOST_SKETCHES = 10_000  # in one body
_SOURCES_LISTED = 1_000  # in one answer
_OK, _NO_CONTENT, _NOT_MODIFIED, _NOT_FOUND = 200, 204, 304, 404
_TOO_LONG, _UNPROCESSABLE = 413, 422
_NOTHING_TAKEN = "urn:decaysketch:problem:nothing-taken"


@dataclass(frozen=True, slots=True)
class Receipt:
    """The aggregator's response to one source's sketches.

    Attributes:
        source: the source.
        sketches: number of posted sketches.
        size: their bytes.
        new: how many were not in the journal.
        token: send it with a query for read-your-writes.
    """

    source: str
    sketches: int
    size: int
    new: int
    token: str


def joined(blobs: Sequence[bytes], recipe: Recipe) -> Any:
    """Return the sketch that a stream's source contains after these were posted.

    Args:
        blobs: at least one.
        recipe: the stream's configuration. Its capacity applies.
    """
    return merge([recipe.empty(), *map(recipe.decode, blobs)])


def source_name(key: tuple[Any, ...]) -> str:
    """Return the source name for a key: its parts joined by slashes, or "all" for an empty key.

    Different keys in the same columns have different names. Times with a zone are written in UTC.

    Raises:
        ParameterError: the key contains a null.
    """
    if not key:
        return "all"
    if any(part is None for part in key):
        raise ParameterError(f"the key {key} has a null in it and cannot name a source")
    name = "/".join(map(_name_part, key))
    return "%all" if name == "all" else name


def _name_part(part: Any) -> str:
    if isinstance(part, datetime) and part.tzinfo is not None:
        part = part.astimezone(UTC)
    text = part.hex() if isinstance(part, bytes) else str(part)
    return text.replace("%", "%25").replace("/", "%2F") or "%empty"  # no text is quoted so


class Poster(Asking):
    """Post sketches to one stream in an aggregator. Threads may share it.

    Args:
        client: an httpx2 client with the aggregator's base URL and the API key.
        stream: stream name.
        attempts: tries per request before it fails.
        backoff_s, max_backoff_s: the wait after the first failure is at most ``backoff_s``. It
            doubles with each failure up to ``max_backoff_s``. ``Retry-After`` applies up to a
            minute.
        max_body_bytes: sketches from one source share bodies up to this size.
        wait: called with the seconds between two attempts.

    Raises:
        ParameterError: ``attempts`` is below 1.
    """

    def __init__(
        self,
        client: httpx2.Client,
        stream: str,
        *,
        attempts: int = 6,
        backoff_s: float = 0.5,
        max_backoff_s: float = 10.0,
        max_body_bytes: int = 8 << 20,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(
            client, attempts=attempts, backoff_s=backoff_s, max_backoff_s=max_backoff_s, wait=wait
        )
        self.stream = stream
        self._path = f"/v1/streams/{quote(stream, safe='')}"
        self._max_body_bytes = max_body_bytes

    # ------------------------------------------------------------------------------- the stream

    def create_stream(self, recipe: Recipe) -> dict[str, Any]:
        """Create a stream, or find it with equal parameters. Return its state.

        Raises:
            PostRefusedError: it has other parameters, or the aggregator rejects these.
            UnreachableError: there was no response.
        """
        return self.fields("PUT", self._path, {"name": self.stream}, json=recipe.to_dict())

    def stream_state(self) -> dict[str, Any]:
        """Return the stream's state.

        Raises:
            PostRefusedError: the stream does not exist, or the key does not cover it.
            UnreachableError: there was no response.
        """
        return self.fields("GET", self._path, {"name": self.stream}, params={"sources": 0})

    def recipe(self) -> Recipe:
        """The stream's sketch configuration.

        Raises:
            ParameterError: it uses a secret id key, or its decay is a table.
            PostRefusedError, UnreachableError: see :meth:`stream_state`.
        """
        state = self.stream_state()
        return recipe_from_dict({n: state[n] for n in _RECIPE if state.get(n) is not None})

    def sources(self) -> list[str]:
        """All source names, sorted.

        Raises:
            ClientError: the aggregator returned an unsorted list.
            PostRefusedError, UnreachableError: see :meth:`stream_state`.
        """
        found: list[str] = []
        while True:
            after = found[-1] if found else ""
            listed = [each["source"] for each in self._listed(after)]
            found += listed
            if len(listed) < _SOURCES_LISTED:
                return found
            if listed[-1] <= after:
                raise ClientError(
                    f"{self._path} lists {listed[-1]!r} among the sources after {after!r}"
                )

    def _listed(self, after: str) -> list[dict[str, Any]]:
        asked: dict[str, Any] = {"sources": _SOURCES_LISTED}
        if after:
            asked["after_source"] = after
        fields = self.fields("GET", self._path, {"name": self.stream}, params=asked)
        listed: list[dict[str, Any]] = fields["sources"]
        return listed

    def digests(self, sources: Iterable[str]) -> dict[str, str]:
        """Return source digests, as far as the aggregator knows them.

        Each response covers up to 1,000 sources. Raises as :meth:`stream_state` does.
        """
        wanted = sorted(set(sources), reverse=True)
        found: dict[str, str] = {}
        after = ""
        while wanted:
            after = max(after, wanted[-1][:-1])  # no name that is wanted lies between
            listed = self._listed(after)
            found |= {each["source"]: each["digest"] for each in listed}
            if len(listed) < _SOURCES_LISTED or listed[-1]["source"] <= after:
                break
            after = listed[-1]["source"]
            while wanted and wanted[-1] <= after:
                wanted.pop()
        return found

    # --------------------------------------------------------------------------------- sketches

    def post(self, source: str, blobs: Sequence[bytes]) -> Receipt:
        """Post sketches from one source. They are on the aggregator's disk when this returns.

        Raises:
            PostRefusedError: the aggregator rejected one. It accepted the ones before.
            UnreachableError: there was no response.
        """
        waiting = list(_bodies(blobs, self._max_body_bytes))[::-1]
        new, token = 0, ""
        while waiting:
            part = waiting.pop()
            try:
                fields = self._post(source, part)
            except PostRefusedError as fault:
                if fault.status != _TOO_LONG or len(part) == 1:
                    raise
                waiting += [part[len(part) // 2 :], part[: len(part) // 2]]
                continue
            new += sum(not each["duplicate"] for each in fields["sketches"])
            token = fields["token"]
        return Receipt(source, len(blobs), sum(map(len, blobs)), new, token)

    def _post(self, source: str, part: Sequence[bytes]) -> dict[str, Any]:
        body, media = part[0], _SKETCH
        if len(part) > 1:
            body = b"".join(len(each).to_bytes(_LENGTH_BYTES, "little") + each for each in part)
            media = _SKETCHES
        return self.fields(
            "POST", f"{self._path}/sketches", {"stream": self.stream, "source": source},
            params={"source": source}, content=body, headers={"content-type": media},
        )  # fmt: skip

    def post_observations(self, source: str, stream: bytes) -> dict[str, Any]:
        """Post raw observations. Return the outcome, even if every row was rejected.

        Args:
            source: the source.
            stream: an Arrow stream with the columns value, weight, time and id.

        Raises:
            PostRefusedError: the complete body was rejected.
            UnreachableError: there was no response.
        """
        expected = {"stream": self.stream, "source": source}
        answer = self.answer(
            "POST", f"{self._path}/observations",
            lambda answer: isinstance(_judge_rows(answer, expected), Taken), expected,
            params={"source": source, "verdicts": "counts"}, content=stream,
            headers={"content-type": _ARROW},
        )  # fmt: skip
        outcome = _judge_rows(answer, expected)
        assert isinstance(outcome, Taken)
        return outcome.fields

    def sketch(self, source: str | None = None) -> tuple[bytes, str] | None:
        """Return the merged sketch for a source, or for the stream, and its digest.

        None if the source posted nothing. The digest is computed from the bytes. If reading them
        needs a secret or a table, it is the aggregator's.

        Raises:
            CorruptSketchError: the response is not a sketch.
            PostRefusedError, UnreachableError: see :meth:`stream_state`.
        """
        try:
            answer = self.answer(
                "GET", f"{self._path}/sketch", _is_sketch, {"name": self.stream},
                params={} if source is None else {"source": source},
            )  # fmt: skip
        except PostRefusedError as fault:
            if fault.status == _NOT_FOUND and fault.kind == "unknown-source":
                return None
            raise
        said = answer.headers.get("etag", "").removeprefix("W/").strip('"')
        try:
            digest = decode(answer.body).digest()
        except IncompatibleSketchError:
            digest = said
        if digest != said:
            raise CorruptSketchError(
                f"a sketch of {self.stream} has the digest {digest}; the aggregator says {said!r}"
            )
        return answer.body, digest

    def check(self, source: str, sketch: Any, recipe: Recipe, token: str = "") -> Held:
        """Return whether the aggregator has a source's sketch.

        Args:
            source: the source.
            sketch: the posted sketch, see :func:`joined`.
            recipe: the stream's configuration.
            token: the post's token, so that only a process that has the post answers.

        Raises:
            CorruptSketchError, IncompatibleSketchError: the response is not a sketch for this
                stream.
            PostRefusedError, UnreachableError: see :meth:`stream_state`.
        """
        digest = sketch.digest()
        headers = {"if-none-match": f'"{digest}"'}
        if token:
            headers["decaysketch-after"] = token
        try:
            answer = self.answer(
                "GET", f"{self._path}/sketch", _is_sketch, {"name": self.stream},
                params={"source": source}, headers=headers,
            )  # fmt: skip
        except PostRefusedError as fault:
            if fault.status == _NOT_FOUND and fault.kind != "unknown-stream":
                return "missing"
            raise
        if answer.status == _NOT_MODIFIED:
            return "equal"
        held = recipe.decode(answer.body)
        before = held.digest()
        if before == digest:
            return "equal"
        return "more" if merge([held, sketch]).digest() == before else "missing"

    def clear(self, source: str) -> None:
        """Drop everything that a source posted. Needs a key with role admin.

        Raises:
            PostRefusedError, UnreachableError: see :meth:`stream_state`. The source may remain
                revoked until :meth:`reinstate`.
        """
        try:
            self._tell(source, "revoke")
        except ClientError:
            with suppress(ClientError):  # perhaps only the response was lost
                self.reinstate(source)
            raise
        try:
            self.reinstate(source)
        except ClientError:
            self.reinstate(source)

    def reinstate(self, source: str) -> None:
        """Admit a revoked source again. Needs a key with role admin.

        Raises:
            PostRefusedError, UnreachableError: see :meth:`stream_state`.
        """
        self._tell(source, "reinstate")

    def _tell(self, source: str, verb: str) -> None:
        path = f"{self._path}/sources/{quote(source, safe='')}/{verb}"
        try:
            self.answer(
                "POST", path, _is_done, {"name": self.stream},
                headers={"content-type": "application/json"},  # asked for, since no form can say it
            )  # fmt: skip
        except PostRefusedError as fault:
            if fault.kind != "unknown-source":  # it never posted, or is reinstated already
                raise


def _judge_rows(answer: Answer, expected: Mapping[str, str]) -> Outcome:
    """As :func:`judge`. A rejection of every row is reported per row, like a rejection of some."""
    if answer.status == _UNPROCESSABLE:
        outcome = judge(replace(answer, status=_OK), expected)
        if isinstance(outcome, Taken) and outcome.fields.get("type") == _NOTHING_TAKEN:
            return outcome
    return judge(answer, expected)


def _is_done(answer: Answer) -> bool:
    return answer.status == _NO_CONTENT


def _is_sketch(answer: Answer) -> bool:
    media = answer.headers.get("content-type", "")
    return answer.status == _NOT_MODIFIED or (answer.status == _OK and media.startswith(_SKETCH))


def _bodies(blobs: Sequence[bytes], most_bytes: int) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    size = 0
    for blob in blobs:
        longer = size + _LENGTH_BYTES + len(blob)
        if part and (longer > most_bytes or len(part) == _MOST_SKETCHES):
            yield part
            part, longer = [], _LENGTH_BYTES + len(blob)
        part.append(blob)
        size = longer
    if part:
        yield part
