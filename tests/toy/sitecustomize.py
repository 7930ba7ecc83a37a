"""Every process with this folder on its path has the toy family and the toy message format. Python
runs this file first.
"""

import os

import senml
from sites_family import SITES
from toy_family import COUNTS, TOY

from decaysketch.families import FAMILIES
from decaysketch.ingest.message_formats import MESSAGE_FORMATS, MessageFormat

FAMILIES["toy"] = TOY
MESSAGE_FORMATS["senml"] = MessageFormat(senml.SenmlMap, senml.open_message, webhook="SenML")
if os.environ.get("TOY_COUNTS"):
    FAMILIES["counts"] = COUNTS
if os.environ.get("TOY_SITES"):
    FAMILIES["sites"] = SITES
