"""Posting sketches that are bytes already, and proof that the aggregator holds them.

What a :class:`Sensor` does for a stream of observations, :class:`Poster` does for a table of
sketches: every request is tried again until its answer would not change any more, which costs
nothing because a sketch that arrives twice changes nothing. Then it asks what the aggregator holds
of a source. With sketch ``s`` posted and ``h`` held there,

    h = s          nothing but what was posted, now or before;
    h join s = h   all that was posted, and more: somebody else posts there, or what was posted
                   before has been corrected since;
    else           something is missing.

All three are told by digests of states; bytes are fetched only where the first does not hold.

A poster also reads what a stream holds, and posts raw observations.
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

from decaysketch.client.asking import Asking, PostRefusedError, UnreachableError, problem_kind
from decaysketch.client.delivery import Answer, Outcome, Taken, judge
from decaysketch.client.errors import ClientError
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
    """What the aggregator said to the sketches of one source.

    Attributes:
        source: of whom they are.
        sketches: how many were posted.
        size: of all of them, in bytes.
        new: how many of them the journal did not hold.
        token: who shows it to the aggregator is answered from a sketch that holds the post.
    """

    source: str
    sketches: int
    size: int
    new: int
    token: str


def joined(blobs: Sequence[bytes], recipe: Recipe) -> Any:
    """The sketch that a source of a stream holds once these were posted to it.

    Args:
        blobs: at least one.
        recipe: of the stream; its capacity is in force, however large theirs are.
    """
    return merge([recipe.empty(), *map(recipe.decode, blobs)])


def source_name(key: tuple[Any, ...]) -> str:
    """The source that a key is posted as: its parts, joined by slashes; "all" where it has none.

    Different keys of the same columns have different names. Times with a zone are given in UTC.

    Raises:
        ParameterError: there is a null in it.
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
    """Posts sketches to one stream of an aggregator. Threads may share it.

    Args:
        client: an httpx2 client whose base URL is the aggregator's; it brings the API key.
        stream: name of the stream.
        attempts: how often one request is tried before it counts as failed.
        backoff_s, max_backoff_s: the wait after the first failure is up to ``backoff_s``, twice as
            much after each further one, up to the other; at least what ``Retry-After`` says, up to
            a minute.
        max_body_bytes: sketches of one source share bodies up to this size.
        wait: called with seconds between two attempts.

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
        """Create the stream of a recipe, or find it there with the same one; its state.

        Raises:
            PostRefusedError: it has other parameters, or the aggregator does not take these.
            UnreachableError: there was no answer.
        """
        return self.fields("PUT", self._path, {"name": self.stream}, json=recipe.to_dict())

    def stream_state(self) -> dict[str, Any]:
        """What the aggregator knows of the stream.

        Raises:
            PostRefusedError: there is no such stream, or the key does not cover it.
            UnreachableError: there was no answer.
        """
        return self.fields("GET", self._path, {"name": self.stream}, params={"sources": 0})

    def recipe(self) -> Recipe:
        """What the stream's sketches are built by.

        Raises:
            ParameterError: its ids are keyed by a secret, or its decay is a table.
            PostRefusedError, UnreachableError: see :meth:`stream_state`.
        """
        state = self.stream_state()
        return recipe_from_dict({n: state[n] for n in _RECIPE if state.get(n) is not None})

    def sources(self) -> list[str]:
        """Names of all sources of the stream, in their order.

        Raises:
            ClientError: the aggregator lists them in no order.
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
        """Digests of what the aggregator holds of sources, as far as it knows them.

        Every answer tells of up to 1,000 sources. Raises as :meth:`stream_state` does.
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
        """Post sketches of one source; once this returns they are on the aggregator's disk.

        Raises:
            PostRefusedError: the aggregator refused one of them; what went before it was taken.
            UnreachableError: there was no answer.
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
        """Post raw observations; what became of them, also where every one was refused.

        Args:
            source: whose.
            stream: an Arrow stream with the columns value, weight, time and id.

        Raises:
            PostRefusedError: the body as a whole was refused.
            UnreachableError: there was no answer.
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
        """The merged sketch of a source, or of the whole stream, and its digest.

        None where nothing came from that source. The digest is computed from the bytes, unless only
        who has a secret or a table can read them: then it is the aggregator's.

        Raises:
            CorruptSketchError: the answer is no sketch.
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
        """Whether the aggregator holds a sketch of a source.

        Args:
            source: whose.
            sketch: what was posted, see :func:`joined`.
            recipe: of the stream.
            token: of the post, so that no process answers which does not know of it yet.

        Raises:
            CorruptSketchError, IncompatibleSketchError: the answer is no sketch of this stream.
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
        """Empty a source: what it posted is dropped. Needs a key of role admin.

        Raises:
            PostRefusedError, UnreachableError: see :meth:`stream_state`. The source may be left
                revoked, until :meth:`reinstate`.
        """
        try:
            self._tell(source, "revoke")
        except ClientError:
            with suppress(ClientError):  # what failed may have been the answer only
                self.reinstate(source)
            raise
        try:
            self.reinstate(source)
        except ClientError:
            self.reinstate(source)

    def reinstate(self, source: str) -> None:
        """Admit a revoked source again. Needs a key of role admin.

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
    """As :func:`judge`; that no row was taken is told row by row, as that some were."""
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
