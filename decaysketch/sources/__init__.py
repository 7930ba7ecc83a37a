"""What several sources of one stream heard: set algebra of their sketches under any decay."""

from decaysketch.sources.source_set import SourceSet
from decaysketch.sources.view import CoverageView

__all__ = ["CoverageView", "SourceSet"]
