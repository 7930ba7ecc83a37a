"""``python -m decaysketch.spark`` writes the SQL functions that query sketches, as listed in the
documentation. With ``moments``, it writes the functions for ranges and comparisons.
"""

from __future__ import annotations

import sys

from decaysketch.engines.moments import moments_table
from decaysketch.engines.questions import functions_table

if __name__ == "__main__":
    sys.stdout.write(moments_table() if sys.argv[1:] == ["moments"] else functions_table())
