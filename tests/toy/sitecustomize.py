"""Every process with this folder on its path has the toy family; Python runs this file first."""

import os

from sites_family import SITES
from toy_family import COUNTS, TOY

from decaysketch.families import FAMILIES

FAMILIES["toy"] = TOY
if os.environ.get("TOY_COUNTS"):
    FAMILIES["counts"] = COUNTS
if os.environ.get("TOY_SITES"):
    FAMILIES["sites"] = SITES
