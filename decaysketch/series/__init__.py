"""Complete series: counter increase, time-weighted averages, states, sessions.

A sample of rows lacks the successor that such queries need. These sketches sample devices and
retain all their rows, so neighbours stay neighbours.

    >>> import decaysketch as ds
    >>> from decaysketch.series import SeriesParams, SeriesSketch
    >>> sketch = SeriesSketch(SeriesParams(time_unit="s"))
    >>> sketch.update([100, 160, 20, 80], 1, [0, 60, 120, 180], [7, 7, 7, 7])
    >>> sketch.increase("window(180)", guard=0).value  # 60, a reset and 20, 60
    140.0
"""

from decaysketch.series.params import SeriesParams
from decaysketch.series.sketch import SeriesSketch, SeriesStats
from decaysketch.series.state import NO_START, SeriesState

__all__ = ["NO_START", "SeriesParams", "SeriesSketch", "SeriesState", "SeriesStats"]
