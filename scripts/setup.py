"""Make `.venv` ready from nothing but a python3 that has pip.

Run by every target of the Makefile; returns in a fraction of a second when there is nothing to do.
Nothing outside of the project's folder is changed, apart from the download caches of pip and uv.

1. uv goes into `.boot` with `pip install --target`. That works on systems whose own Python is
   marked as externally managed and on those that ship without the venv module.
2. uv makes `.venv` and installs `requirements/dev.txt`, every version of which is fixed. Should uv
   fail (it does not read pip's configuration, and a site may reach its packages only through
   that), pip itself installs the same file into the same environment.
3. The project is installed in editable form.
4. Where no Java that Spark can use is found, `requirements/java.txt` adds one as a package.

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
STAMP = VENV / "setup-stamp"

OLDEST, NEWEST = (3, 11), (3, 14)  # what the pinned packages have wheels for


def main():
    wanted = fingerprint()
    up_to_date = VENV_PYTHON.exists() and STAMP.exists() and STAMP.read_text() == wanted
    if up_to_date and has_java():
        return
    uv = fetch_uv()
    if not up_to_date:
        make_environment(uv)
        say("installing the pinned packages into .venv")
        install(uv, "-r", REQUIREMENTS / "dev.txt")
        install(uv, "--no-build-isolation", "--editable", ROOT)
    if not has_java():
        say("no Java 17, 21 or 25 found: adding one as a package")
        install(uv, "-r", REQUIREMENTS / "java.txt")
    STAMP.write_text(wanted)
    say("ready")


def fingerprint():
    """What the environment is made from; the folder too, as the editable install names it."""
    digest = hashlib.sha256(str(ROOT).encode())
    for path in [*sorted(REQUIREMENTS.glob("*.txt")), ROOT / "pyproject.toml", Path(__file__)]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


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
