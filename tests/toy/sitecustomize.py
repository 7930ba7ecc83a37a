"""Every process with this folder on its path has the toy family; Python runs this file first."""

import os

from toy_family import COUNTS, TOY

from decaysketch.families import FAMILIES

FAMILIES["toy"] = TOY
if os.environ.get("TOY_COUNTS"):
    FAMILIES["counts"] = COUNTS
