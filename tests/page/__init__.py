"""Tests of the dashboard in a browser. As a package they share one: see ``conftest.browser``."""
