"""Tests, which import each other as ``tests.page.conftest`` and their helpers as ``support``."""
