"""An aggregator for engine tasks: its address and its key's location."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from decaysketch.client.access import bearer, is_secret, plain_url
from decaysketch.client.posting import Poster
from decaysketch.client.trust import trust
from decaysketch.errors import ParameterError

__all__ = ["Address"]


@dataclass(frozen=True)
class Address:
    """One stream in an aggregator, without any secret: safe in plans, logs and messages.

    Attributes:
        url, stream: the aggregator and the stream.
        key_file, key_variable: location of the API key, on every machine that sends. None: the
            aggregator requires none.
        attempts, timeout_s: tries for each request, and time limit for each.
        ca_file: PEM file, on every machine that sends, with the only authorities to trust. None:
            the system's.
    """

    url: str
    stream: str
    key_file: str | None = None
    key_variable: str | None = None
    attempts: int = 6
    timeout_s: float = 60.0
    ca_file: str | None = None

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> Address:
        """Parse a data source's options.

        Raises:
            ParameterError: an option is missing, outside its domain, or would show a secret in
                every plan.
        """
        for name in options:
            if is_secret(name):
                raise ParameterError(
                    f"the option {name} would be in plans and logs; give keyFile or keyVariable"
                )
        for name in ("url", "stream"):
            if name not in options:
                raise ParameterError(f"the option {name} is missing")
        url = plain_url(options["url"], "the option url")
        try:
            attempts = int(options.get("attempts", cls.attempts))
            timeout_s = float(options.get("timeoutS", cls.timeout_s))
        except ValueError as fault:
            raise ParameterError(f"attempts or timeoutS: {fault}") from None
        if attempts < 1:
            raise ParameterError(f"attempts is {attempts}; expected at least 1")
        if not (timeout_s > 0 and math.isfinite(timeout_s)):
            raise ParameterError(f"timeoutS is {timeout_s}; expected a finite number above 0")
        return cls(
            url, options["stream"], options.get("keyFile"), options.get("keyVariable"),
            attempts, timeout_s, options.get("caFile"),
        )  # fmt: skip

    @contextmanager
    def connected(self) -> Iterator[Poster]:
        """Return a connection. It reads the API key now, on this machine.

        Raises:
            OSError: the key file cannot be read.
            ParameterError: the variable is not set, or contains no key.
        """
        key = self._key()
        headers = {} if key is None else {"authorization": key}
        verify = trust(self.ca_file, "the option caFile")
        with httpx2.Client(
            base_url=self.url, headers=headers, timeout=self.timeout_s, verify=verify
        ) as client:
            yield Poster(client, self.stream, attempts=self.attempts)

    def _key(self) -> str | None:
        if self.key_file is not None:
            text = Path(self.key_file).read_text(encoding="ascii", errors="replace")
            return bearer(text, self.key_file)
        if self.key_variable is None:
            return None
        if self.key_variable not in os.environ:
            raise ParameterError(f"the environment has no variable {self.key_variable}")
        return bearer(os.environ[self.key_variable], f"the variable {self.key_variable}")
