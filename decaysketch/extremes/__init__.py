"""The smallest and the largest value in any window that ends now.

Rows may arrive in any order and more than once.

A sample does not contain them: its maximum bounds a rank at most. These sketches keep the rows that
no later row exceeds. There are few of them.

    >>> import decaysketch as ds
    >>> from decaysketch.extremes import ExtremesParams, ExtremesSketch
    >>> sketch = ExtremesSketch(ExtremesParams(time_unit="s"))
    >>> sketch.update([20.5, 24.0, 19.0, 24.0], 1, [100, 130, 160, 130])
    >>> sketch.max(ds.decay.window(60), now=160).value
    24.0
    >>> sketch.highest(ds.decay.window(60), now=160)
    Observed(value=24.0, time=130)
"""

from decaysketch.extremes.params import ExtremesParams
from decaysketch.extremes.sketch import ExtremesSketch
from decaysketch.extremes.state import ExtremesState

__all__ = ["ExtremesParams", "ExtremesSketch", "ExtremesState"]
