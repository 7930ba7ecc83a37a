"""An aggregator as tasks of an engine meet it: where it is, by which key, what they send it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import pyarrow as pa

from decaysketch.client.posting import Poster, PostRefusedError
from decaysketch.errors import ParameterError
from decaysketch.families import Recipe, recipe_from_dict

__all__ = ["Address", "Aggregator", "source_name"]

_SECRETS: Final = ("key", "apiKey", "api_key", "token", "password", "authorization", "idKey")
_SOURCES_LISTED: Final = 1_000  # in one answer
_NOT_FOUND: Final = 404
_ARROW: Final = "application/vnd.apache.arrow.stream"
_RECIPE: Final = ("family", "params", "decay")


@dataclass(frozen=True)
class Address:
    """One stream of an aggregator, without any secret: fit for plans, logs and messages.

    Attributes:
        url, stream: which.
        key_file, key_variable: where the API key is to be found, on every machine that sends; None:
            the aggregator asks for none.
        id_key_file: where the stream's secret id key is, in hex.
        attempts, timeout_s: tries for each request, and patience with each.
    """

    url: str
    stream: str
    key_file: str | None = None
    key_variable: str | None = None
    id_key_file: str | None = None
    attempts: int = 6
    timeout_s: float = 60.0

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> Address:
        """From the options of a data source.

        Raises:
            ParameterError: one is missing, is no number, or would show a secret in every plan.
        """
        for name in _SECRETS:
            if name in options:
                raise ParameterError(
                    f"the option {name} would be in plans and logs; give keyFile or keyVariable, "
                    "or idKeyFile"
                )
        for name in ("url", "stream"):
            if name not in options:
                raise ParameterError(f"the option {name} is missing")
        if urlsplit(options["url"]).username is not None:
            raise ParameterError("the option url has a name in it; give keyFile or keyVariable")
        try:
            attempts = int(options.get("attempts", cls.attempts))
            timeout_s = float(options.get("timeoutS", cls.timeout_s))
        except ValueError as fault:
            raise ParameterError(f"attempts or timeoutS: {fault}") from None
        return cls(
            options["url"], options["stream"], options.get("keyFile"), options.get("keyVariable"),
            options.get("idKeyFile"), attempts, timeout_s,
        )  # fmt: skip

    @contextmanager
    def connected(self) -> Iterator[Aggregator]:
        """A connection; the secrets are read now and here.

        Raises:
            OSError: the file of the key cannot be read.
            ParameterError: the variable is not set.
        """
        headers = {}
        if (key := self._key()) is not None:
            headers["authorization"] = f"Bearer {key}"
        with httpx2.Client(base_url=self.url, headers=headers, timeout=self.timeout_s) as client:
            yield Aggregator(client, self.stream, attempts=self.attempts)

    def _key(self) -> str | None:
        if self.key_file is not None:
            return Path(self.key_file).read_text(encoding="ascii").strip()
        if self.key_variable is None:
            return None
        if self.key_variable not in os.environ:
            raise ParameterError(f"the environment has no variable {self.key_variable}")
        return os.environ[self.key_variable]

    def id_key(self) -> bytes | None:
        """The stream's secret.

        Raises:
            OSError, ParameterError: the file cannot be read, or holds no hexadecimal digits.
        """
        if self.id_key_file is None:
            return None
        try:
            return bytes.fromhex(Path(self.id_key_file).read_text(encoding="ascii"))
        except ValueError:
            raise ParameterError(f"{self.id_key_file} does not hold hexadecimal digits") from None


class Aggregator(Poster):
    """A poster that also reads, and sends raw observations."""

    def recipe(self, id_key: bytes | None = None) -> Recipe[Any]:
        """What the stream's sketches are built by.

        Raises:
            ParameterError: it needs an id key that is not given, or has no use for one.
            PostRefusedError, UnreachableError: see ``stream_state``.
        """
        state = self.stream_state()
        form = {name: state[name] for name in _RECIPE if state.get(name) is not None}
        return recipe_from_dict(form, id_key=id_key)

    def sources(self) -> list[str]:
        """Names of all sources of the stream, in their order.

        Raises as ``stream_state`` does.
        """
        found: list[str] = []
        while True:
            asked: dict[str, Any] = {"sources": _SOURCES_LISTED}
            if found:
                asked["after_source"] = found[-1]
            fields = self._fields("GET", self._path, {"name": self.stream}, params=asked)
            found += [each["source"] for each in fields["sources"]]
            if len(fields["sources"]) < _SOURCES_LISTED:
                return found

    def sketch(self, source: str | None = None) -> tuple[bytes, str] | None:
        """The merged sketch of a source, or of the whole stream, and its digest.

        None where nothing came from that source.

        Raises as ``stream_state`` does.
        """
        try:
            answer = self._answer(
                "GET", f"{self._path}/sketch", _is_sketch, {"name": self.stream},
                params={} if source is None else {"source": source},
            )  # fmt: skip
        except PostRefusedError as fault:
            if fault.status == _NOT_FOUND and fault.kind == "unknown-source":
                return None
            raise
        return answer.body, answer.headers["etag"].removeprefix("W/").strip('"')

    def post_observations(self, source: str, rows: pa.Table) -> dict[str, Any]:
        """Post raw observations: columns value, weight, time and id; what became of them.

        Raises:
            PostRefusedError: the body as a whole was refused.
            UnreachableError: there was no answer.
        """
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows.combine_chunks())
        return self._fields(
            "POST", f"{self._path}/observations", {"stream": self.stream, "source": source},
            params={"source": source, "verdicts": "counts"}, content=sink.getvalue().to_pybytes(),
            headers={"content-type": _ARROW},
        )  # fmt: skip


def _is_sketch(answer: Any) -> bool:
    return bool(answer.status == 200 and "etag" in answer.headers)


def source_name(key: tuple[Any, ...]) -> str:
    """The source that a key is posted as: its parts, joined by slashes; "all" where it has none.

    Raises:
        ParameterError: there is a null in it.
    """
    if any(part is None for part in key):
        raise ParameterError(f"the key {key} has a null in it and cannot name a source")
    parts = [part.hex() if isinstance(part, bytes) else str(part) for part in key]
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts) or "all"
