"""Set algebra over the messages that several sources heard, under any decay."""

from decaysketch.sources.source_set import SourceSet
from decaysketch.sources.view import CoverageView

__all__ = ["CoverageView", "SourceSet"]
