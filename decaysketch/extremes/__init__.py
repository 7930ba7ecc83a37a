"""The least and the largest value of any window that ends now, from whatever came, however often.

A sample holds neither: what is largest in it is a bound in rank at the most. These sketches keep
the rows that no later one exceeds, of which there are few.

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
