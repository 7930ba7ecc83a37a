"""The build backend: setuptools, which also asks for a C compiler where the machine has none."""

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

from scripts import compiler


def _with_compiler(wanted):
    compiler.headers()  # or else all of it is fetched in vain
    return [*wanted, *([] if compiler.own() else compiler.PACKAGE.read_text().split())]


def get_requires_for_build_wheel(config_settings=None):
    return _with_compiler(build_meta.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(config_settings=None):
    return _with_compiler(build_meta.get_requires_for_build_editable(config_settings))
