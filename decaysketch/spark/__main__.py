"""``python -m decaysketch.spark`` writes the functions of SQL that ask sketches, as the documents
list them; with ``moments``, those about ranges and comparisons."""

from __future__ import annotations

import sys

from decaysketch.engines.moments import moments_table
from decaysketch.engines.questions import functions_table

if __name__ == "__main__":
    sys.stdout.write(moments_table() if sys.argv[1:] == ["moments"] else functions_table())
