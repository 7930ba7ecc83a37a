"""``python -m decaysketch.spark`` writes the functions of SQL that ask sketches, as the documents
list them."""

from __future__ import annotations

import sys

from decaysketch.engines.questions import functions_table

if __name__ == "__main__":
    sys.stdout.write(functions_table())
