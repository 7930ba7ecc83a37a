"""The program ``decaysketch`` (extra ``cli``): build, merge, query and inspect sketches in files.

decaysketch build LOG... --out FILE [--by KEYS]       sketches from Parquet, CSV, NDJSON or Arrow
decaysketch merge SKETCH... --out FILE                merge several into one
decaysketch query SKETCH AGGREGATE... [--decay ...]   results with their intervals
decaysketch inspect SKETCH...                         the content of a file
decaysketch coverage SKETCH... [--set EXPR]           the messages that several sources heard
decaysketch serve-check URL                           check an aggregator
decaysketch describe URL STREAM [--unit UNIT]         the unit and description of a stream
decaysketch monitor list|watch|put|delete URL STREAM  alerts of an aggregator
decaysketch bridge mqtt|replay --config FILE          messages from a broker to an aggregator
decaysketch spool list|recover|export FOLDER          a sensor's unsent and set-aside data
"""

from __future__ import annotations

import sys

import typer

from decaysketch.cli.bridge import bridge
from decaysketch.cli.build import build
from decaysketch.cli.coverage import coverage
from decaysketch.cli.describe import describe
from decaysketch.cli.monitor import monitor
from decaysketch.cli.serve_check import serve_check
from decaysketch.cli.sketches import inspect, merge, query
from decaysketch.cli.spool import spool

__all__ = ["app", "main"]

# Local variables stay out of tracebacks: one of them may be a secret.
app = typer.Typer(
    add_completion=False, pretty_exceptions_show_locals=False, no_args_is_help=True,
    help="Duplicate-insensitive, time-decayed sketches of observations, in files.",
)  # fmt: skip
for _command in (build, merge, query, inspect, coverage):
    app.command()(_command)
app.command("serve-check")(serve_check)
app.command()(describe)
app.add_typer(spool, name="spool")
app.add_typer(bridge, name="bridge")
app.add_typer(monitor, name="monitor")


class _WithoutPandas:
    """Hides pandas: pyarrow imports it where it is installed, which takes longer than most builds,
    and no command uses it.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("this program runs without pandas", name=name)


def main() -> None:
    """Run the program with the arguments of the command line."""
    sys.meta_path.insert(0, _WithoutPandas)
    app()
