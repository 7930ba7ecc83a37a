"""A new family is its folder and one line, a new message format its module and one line: no
product file changes.

``toy_family.py`` is the folder of a toy, ``senml.py`` the module of a format. ``sitecustomize.py``
has both lines, and Python runs it at the start of every process that has this folder on its path:
test runs, an aggregator, the workers of Spark. So no other test sees the toys.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def run(*arguments: str, **environment: str) -> str:
    """A run of tests that has the toy, of which none may fail; what it says."""
    places = {"PYTHONPATH": os.pathsep.join((str(HERE), str(ROOT)))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        env=os.environ | places | {"PYTEST_ADDOPTS": ""} | environment,  # plugins of this run
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout.splitlines()[-1]
    return done.stdout


def test_laws_hostile_bytes_and_every_interface_with_a_family_and_a_format() -> None:
    run("tests/laws", "tests/toy/roads.py", "tests/toy/messages.py", "-m", "not spark", "-k", "toy")


@pytest.mark.spark
def test_it_is_built_and_asked_in_spark() -> None:
    if " skipped" in run("tests/toy/roads.py", "-m", "spark"):
        pytest.skip("there is no Java here")


def test_an_aggregator_keeps_its_word_where_sketches_may_contradict_each_other() -> None:
    run("tests/toy/sites.py", TOY_SITES="1")


def test_a_family_without_idempotent_merge_is_refused() -> None:
    run("tests/toy/roads.py", "-k", "WithoutThePromise or registered", TOY_COUNTS="1")
