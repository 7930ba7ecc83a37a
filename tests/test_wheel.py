"""What is shipped: a source archive that builds, and a wheel that needs no compiler."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

import decaysketch
from scripts import compiler

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "decaysketch"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


def build(kind: str, source: Path, folder: Path) -> Path:
    """What the build backend makes of a source tree; kernels that were compiled here are taken."""
    program = f"import sys\nfrom scripts import backend\nprint(backend.build_{kind}(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        cwd=source, env={**os.environ, "DECAYSKETCH_BUILD": str(ROOT / "build")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


def sources(*kinds: str) -> set[str]:
    return {str(path.relative_to(ROOT)) for kind in kinds for path in LIBRARY.rglob(kind)}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> Path:
    """Built from the source archive, as wherever there is no wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    [tree] = folder.iterdir()
    return build("wheel", tree, folder)


class TestSourceArchive:
    def test_holds_what_kernels_are_made_from_and_nothing_that_was_built(
        self, archive: Path
    ) -> None:
        with tarfile.open(archive) as packed:
            names = {each.name.partition("/")[2] for each in packed if each.isfile()}
        library = {name for name in names if name.startswith("decaysketch/")}
        kinds = ("*.py", "*.pyi", "py.typed", "*.pyx", "*.pxd", "*.c", "*.h")
        assert library == sources(*kinds)
        assert {"setup.py", "scripts/backend.py", "scripts/compiler.py", "requirements/zig.txt"} < (
            names
        )
        assert not {name.partition("/")[0] for name in names} & {"api", "build", "tests"}


class TestWheel:
    def test_holds_the_library_and_its_compiled_kernels(self, wheel: Path) -> None:
        names = zipfile.ZipFile(wheel).namelist()
        top = {name.partition("/")[0] for name in names}
        assert {re.sub(r"-.*", "", name) for name in top} == {"decaysketch"}
        layers = {name.removesuffix(".pyx") + SUFFIX for name in sources("_*native.pyx")}
        assert layers
        library = {name for name in names if name.startswith("decaysketch/")}
        assert library == sources("*.py", "*.pyi", "py.typed") | layers
        assert any(name.endswith("/licenses/LICENSE") for name in names)

    def test_is_for_this_python_and_platform(self, wheel: Path) -> None:
        _, _, _, [tag] = parse_wheel_filename(wheel.name)
        major, minor = sys.version_info[:2]
        assert tag.interpreter == f"cp{major}{minor}"
        assert tag.platform == re.sub(r"[-.]", "_", sysconfig.get_platform())

    def test_metadata(self, wheel: Path) -> None:
        with zipfile.ZipFile(wheel) as packed:
            [name] = [n for n in packed.namelist() if n.endswith("/METADATA")]
            fields = metadata.PathDistribution(zipfile.Path(packed, name.partition("/")[0] + "/"))
            assert fields.metadata["Requires-Python"] == ">=3.11"
            assert fields.metadata["License-Expression"] == "Apache-2.0"
            needed = {Requirement(r).name for r in fields.requires or [] if "extra" not in r}
            assert needed == {"numpy", "scipy", "sympy"}
            assert fields.version == decaysketch.__version__


def needs(name: str) -> Iterator[metadata.Distribution]:
    """What a package that is installed here needs, however indirectly."""
    for need in map(Requirement, metadata.requires(name) or []):
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            yield metadata.distribution(need.name)
            yield from needs(need.name)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The Python of an environment that has the wheel, what it needs, and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True, with_pip=False)
    python = folder / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "uv", "pip", "install", "--offline", "--no-deps",
         "--python", str(python), str(wheel)],
        env={**os.environ, "PYTHONPATH": str(ROOT / ".boot")}, check=True, capture_output=True,
    )  # fmt: skip
    [packages] = folder.glob("lib/python*/site-packages")
    for each in needs("decaysketch"):
        for name in {file.parts[0] for file in each.files or []} - {"..", "__pycache__"}:
            if not (packages / name).exists():
                (packages / name).symlink_to(Path(str(each.locate_file(name))))
    return python


class TestInstalledWheel:
    """Where there is neither the checkout nor a compiler."""

    @staticmethod
    def run(python: Path, program: str) -> str:
        done = subprocess.run(
            [str(python), "-I", "-c", program],
            cwd=python.parent, env={"PATH": "", "HOME": str(python.parent)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def test_is_complete(self, elsewhere: Path) -> None:
        program = (
            "import importlib, pkgutil, decaysketch\n"
            "for module in pkgutil.walk_packages(decaysketch.__path__, 'decaysketch.'):\n"
            "    if module.name.split('.')[1] not in ("
            "'cli', 'client', 'duckdb', 'ingest', 'polars', 'spark', 'tables'):\n"
            "        importlib.import_module(module.name)\n"
            "print(decaysketch.__file__)\n"
        )
        found = Path(self.run(elsewhere, program).strip())
        assert found.is_relative_to(elsewhere.parent.parent)

    def test_builds_merges_encodes_and_answers(self, elsewhere: Path) -> None:
        self.run(elsewhere, (ROOT / "tests" / "smoke.py").read_text(encoding="utf-8"))

    def test_runs_the_example_of_the_readme(self, elsewhere: Path) -> None:
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        [example] = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
        assert self.run(elsewhere, example).startswith("3.0\n")


class TestCompiler:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """The only one on the path; Python was built with a compiler that is not here."""
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("CC", raising=False)
        monkeypatch.setattr(sysconfig, "get_config_var", lambda name: "gcc-of-another-machine")
        return tmp_path

    def test_of_a_machine_that_has_none_is_that_of_the_package(self, folder: Path) -> None:
        assert compiler.own() is None
        command = compiler.command()
        assert command[:4] == [sys.executable, "-m", "ziglang", "cc"]
        assert compiler.march(command, "v3") == "-march=x86_64_v3"

    def test_that_cannot_compile_kernels_is_passed_over(self, folder: Path) -> None:
        for name, status in (("cc", 1), ("clang", 0)):
            (folder / name).write_text(f"#!/bin/sh\nexit {status}\n")
            (folder / name).chmod(0o755)
        assert compiler.own() == [str(folder / "clang")]
        assert compiler.march(compiler.command(), "v3") == "-march=x86-64-v3"

    def test_that_is_named_is_taken(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CC", "ccache 'my cc'")
        assert compiler.command() == ["ccache", "my cc"]

    def test_that_fails_ends_the_build_with_its_command(self, tmp_path: Path) -> None:
        (tmp_path / "cython").symlink_to(ROOT / "build" / "cython")
        done = subprocess.run(
            [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(tmp_path)],
            cwd=ROOT, env={**os.environ, "CC": "false", "DECAYSKETCH_BUILD": str(tmp_path)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode != 0
        assert done.stderr.startswith("compilation failed: false ")
        assert len(done.stderr.splitlines()) == 1
