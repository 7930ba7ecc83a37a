"""``python -m decaysketch.spark`` writes the SQL functions that query sketches, as listed in the
documentation. With ``moments``, it writes the functions for ranges and comparisons, with
``sources`` those for several sources.
"""

from __future__ import annotations

import sys

from decaysketch.tables.sql.queries import functions_table
from decaysketch.tables.sql.sources import functions_table as sources_table
from decaysketch.tables.sql.time_ranges import moments_table

TABLES = {"": functions_table, "moments": moments_table, "sources": sources_table}

if __name__ == "__main__":
    sys.stdout.write(TABLES["".join(sys.argv[1:])]())
