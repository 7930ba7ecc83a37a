"""Make `.venv` ready from nothing but a python3 that has pip.

Run by every target of the Makefile; returns in a fraction of a second when there is nothing to do.
Nothing outside of the project's folder is changed, apart from the download caches of pip and uv.

1. uv goes into `.boot` with `pip install --target`. That works on systems whose own Python is
   marked as externally managed and on those that ship without the venv module.
2. uv makes `.venv` and installs `requirements/dev.txt`, every version of which is fixed. Should uv
   fail (it does not read pip's configuration, and a site may reach its packages only through
   that), pip itself installs the same file into the same environment.
3. The kernels are compiled, where they lie; where no C compiler is found, `requirements/zig.txt`
   adds one as a package.
4. The project is installed in editable form.
5. Where no Java that Spark can use is found, `requirements/java.txt` adds one as a package.

Each step is done again when what it is made from has changed: for kernels that is step 3 alone.

Written for any Python 3 since 3.6, so that an old one gets a message and not a syntax error.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
BOOT = ROOT / ".boot"
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"

BUILDS = [ROOT / "setup.py", ROOT / "scripts" / "compiler.py"]  # what compiles the kernels, and
NATIVE = ("*.c", "*.h", "*.pyx", "*.pxd")  # what they are compiled from
OLDEST, NEWEST = (3, 11), (3, 14)  # what the pinned packages have wheels for


class Step:
    """Something to be done again when what it is made from has changed, or an earlier step has."""

    def __init__(self, name, made_from, after=None):
        # Of the folder, too: an editable install names it.
        digest = hashlib.sha256((after.digest if after else str(ROOT)).encode())
        for path in made_from:
            digest.update(path.read_bytes())
        self.digest = digest.hexdigest()
        self.stamp = VENV / "setup-{}-stamp".format(name)

    def is_done(self):
        return self.stamp.exists() and self.stamp.read_text() == self.digest

    def finish(self):
        self.stamp.write_text(self.digest)


def main():
    sources = [path for kind in NATIVE for path in sorted((ROOT / "decaysketch").rglob(kind))]
    packages = Step("packages", [REQUIREMENTS / "dev.txt", Path(__file__)])
    kernels = Step("kernels", [*BUILDS, *sources], after=packages)
    project = Step("project", [*BUILDS, ROOT / "pyproject.toml"], after=packages)
    if all(step.is_done() for step in (packages, kernels, project)) and has_java():
        return
    uv = fetch_uv()
    if not packages.is_done():
        make_environment(uv)
        if not compiler("headers()"):
            fail("kernels cannot be compiled for it; another one: make PYTHON=/path/to/python3")
        say("installing the pinned packages into .venv")
        install(uv, "-r", REQUIREMENTS / "dev.txt")
        packages.finish()
    if not kernels.is_done():
        compile_kernels(uv)
        kernels.finish()
    if not project.is_done():
        install(uv, "--no-build-isolation", "--editable", ROOT)
        project.finish()
    if not has_java():
        say("no Java 17, 21 or 25 found: adding one as a package")
        install(uv, "-r", REQUIREMENTS / "java.txt")
    say("ready")


def compile_kernels(uv):
    if not compiler("own()"):
        say("no C compiler that serves: taking one from a package, 100 MB to fetch, 410 MB on disk")
        install(uv, "-r", REQUIREMENTS / "zig.txt")
    if not succeeds([VENV_PYTHON, "setup.py", "-q", "build_ext", "--inplace"]):
        fail("the kernels could not be compiled: see above. Another compiler: make setup CC=clang")


def compiler(question):
    """Whether something of `scripts/compiler.py` holds for the Python of `.venv`."""
    program = "import sys; from scripts import compiler; sys.exit(not compiler.{})"
    return succeeds([VENV_PYTHON, "-c", program.format(question)])


def has_java():
    return succeeds([VENV_PYTHON, "-m", "spark_jobs.java"], quiet=True)


def fetch_uv():
    """The command that runs uv, from `.boot`."""
    pin = (REQUIREMENTS / "boot.txt").read_text().strip()
    if not (BOOT / "{}-{}.dist-info".format(*pin.split("=="))).is_dir():
        if not succeeds([sys.executable, "-m", "pip", "--version"], quiet=True):
            fail(
                f"{sys.executable} has no pip. Install it (on Debian and Ubuntu it is the package "
                "python3-pip), or name another Python: make PYTHON=/path/to/python3"
            )
        say(f"fetching {pin}")
        shutil.rmtree(str(BOOT), ignore_errors=True)
        if not succeeds(
            [sys.executable, "-m", "pip", "install", "--quiet", "--target", BOOT, pin],
            PIP_USER="0",  # a user's own setting would contradict --target
            PIP_ROOT_USER_ACTION="ignore",
        ):
            fail(f"pip could not install {pin}")
    return [sys.executable, "-m", "uv"]


def make_environment(uv):
    """`.venv`, with a Python that the pinned packages support; one that is there is kept."""
    check = f"import sys; sys.exit(not {OLDEST} <= sys.version_info[:2] <= {NEWEST})"
    if VENV_PYTHON.exists() and succeeds([VENV_PYTHON, "-c", check]):
        return
    python = sys.executable
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        python = ">={}.{},<{}.{}".format(*OLDEST, NEWEST[0], NEWEST[1] + 1)
        say(f"{sys.executable} is Python {version(sys.version_info)}: looking for {python}")
    options = ["--quiet", "--clear", "--no-python-downloads", "--python", python]
    if not succeeds([*uv, "venv", *options, VENV], PYTHONPATH=BOOT):
        fail(
            f"this project needs Python {version(OLDEST)} to {version(NEWEST)}. "
            "Install one, or name it: make PYTHON=/path/to/python3"
        )


def install(uv, *what):
    """Install into `.venv` with uv, or else with pip and whatever configuration it has."""
    # The files name every package, those that packages need among them. Asking for what they need
    # would fetch and build Spark, which comes as a source archive, anew each time where a registry
    # does not let a cache keep it: half a minute, and 2 GB that uv's cache holds for good.
    complete = "--no-deps"
    # Compiled once, here: or else the first programs, and each of Spark's workers, do it again.
    options = ["--quiet", "--compile-bytecode", complete, "--python", VENV_PYTHON]
    for certificates in ([], ["--system-certs"]):  # uv's own, then those that this machine trusts
        if succeeds([*uv, "pip", "install", *options, *certificates, *what], PYTHONPATH=BOOT):
            return
    say("uv did not succeed; trying with pip")
    pip = [sys.executable, "-m", "pip", "--python", VENV_PYTHON, "install", "--quiet", complete]
    if not succeeds([*pip, *what]):
        fail("could not install " + " ".join(map(str, what)))


def succeeds(command, quiet=False, **environment):
    """Whether a command, run in the project's folder, ends well."""
    variables = {**os.environ, **{name: str(value) for name, value in environment.items()}}
    variables.pop("VIRTUAL_ENV", None)  # an activated environment is not the one that is meant
    output = subprocess.DEVNULL if quiet else None
    command = [str(word) for word in command]
    return subprocess.call(command, cwd=str(ROOT), env=variables, stdout=output, stderr=output) == 0


def version(numbers):
    return "{}.{}".format(*numbers)


def say(message):
    print("set-up: " + message, flush=True)


def fail(message):
    sys.exit("set-up: " + message)


if __name__ == "__main__":
    main()
