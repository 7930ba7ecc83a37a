"""What a sensor refuses to do, each as one sentence that says what is wrong."""

from __future__ import annotations

from decaysketch.errors import DecaySketchError

__all__ = ["ClientError", "SpoolFullError", "SpoolInUseError", "StreamUnknownError"]


class ClientError(DecaySketchError):
    """A sensor cannot do what it was asked to."""


class SpoolInUseError(ClientError):
    """Another process, or another sensor of this one, has the spool open."""


class SpoolFullError(ClientError):
    """The spool has reached its limit: nothing of the update was taken."""


class StreamUnknownError(ClientError):
    """What the stream is built with is neither kept in the spool nor to be had from the server."""
