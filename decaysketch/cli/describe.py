"""``decaysketch describe``: a stream's unit and description."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from decaysketch.cli.monitor import Stream, Url, connected
from decaysketch.cli.output import AsJson, reporting_errors, show
from decaysketch.cli.recipes import ApiKeyFile, CaFile, TimeoutS

__all__ = ["describe"]

_TEXTS = "unit", "description"


def describe(
    url: Url,
    stream: Stream,
    unit: Annotated[
        str | None, typer.Option(help="Set the value unit, such as °C. An empty text removes it.")
    ] = None,
    description: Annotated[
        str | None, typer.Option(help="Set the line that describes the values.")
    ] = None,
    api_key_file: ApiKeyFile = None,
    ca_file: CaFile = None,
    timeout_s: TimeoutS = 10.0,
    as_json: AsJson = False,
) -> None:
    """Show a stream's unit and description, or set them."""
    with reporting_errors(), connected(url, api_key_file, timeout_s, ca_file) as admin:
        if unit is None and description is None:
            state = admin.stream(stream)
        else:
            state = admin.describe_stream(stream, unit=unit, description=description)
    found = {name: state.get(name) for name in _TEXTS}
    table = Table("text", "value")
    for name, text in found.items():
        table.add_row(name, Text(text or "-"))
    show(as_json, found, table)
