"""Errors of a client. Each message names the fault."""

from __future__ import annotations

from decaysketch.errors import DecaySketchError

__all__ = ["ClientError", "SpoolFullError", "SpoolInUseError", "StreamUnknownError"]


class ClientError(DecaySketchError):
    """A client cannot perform a call."""


class SpoolInUseError(ClientError):
    """Another process, or another client in this one, has the spool open."""


class SpoolFullError(ClientError):
    """The spool is full. The update was rejected as a whole."""


class StreamUnknownError(ClientError):
    """The stream's sketch configuration is not in the spool, and the server did not provide it."""
