"""The documentation as a site: built without a complaint, from here alone, and searched in."""

from __future__ import annotations

import functools
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from scripts.site import build

from .conftest import ROOT, picture, sync_api

pytest.importorskip("zensical")

_LOADED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?([^\"'\s>]+)")
_LINKED = re.compile(r"<link\b[^>]*>")
_STYLED = re.compile(r"(?:url\(|@import\s+)[\"']?(https?:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as ``make docs`` does it, into another folder."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    settings = settings.replace("paths: [.]", f"paths: [{ROOT}]")
    settings = settings.replace("scripts/", f"{ROOT}/scripts/")
    (folder / "mkdocs.yml").write_text(settings, encoding="utf-8")
    return build(folder / "mkdocs.yml")


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        text = page.read_text(encoding="utf-8")
        links = [each for each in _LINKED.findall(text) if 'rel="canonical"' not in each]
        outside = [each for each in _LOADED.findall(text) if re.match(r"(https?:)?//", each)]
        outside += [each for each in links if re.search(r"href=[\"']?(https?:)?//", each)]
        assert not outside, (page.name, outside)
    for style in site.rglob("*.css"):
        assert not _STYLED.search(style.read_text(encoding="utf-8")), style.name


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(("theme", "size"), [("light", (1280, 900)), ("dark", (390, 844))])
def test_a_word_is_found(
    site: Path, visit: Callable[..., sync_api.Page], theme: str, size: tuple[int, int]
) -> None:
    with _served(site) as url:
        page = visit(f"{url}/index.html", theme=theme, size=size)
        page.get_by_role("heading", name="decaysketch").first.wait_for()
        picture(page, f"documentation-{theme}.png")
        if size[0] > 1000:
            page.keyboard.press("/")
            page.keyboard.type("drop_tags", delay=20)
            page.get_by_role("link", name=re.compile("protocol", re.IGNORECASE)).first.wait_for()
            picture(page, "documentation-search.png")
        for name in ("reference/sketches.html", "start/analyst.html"):
            page.goto(f"{url}/{name}")
            picture(page, f"documentation-{theme}-{Path(name).stem}.png")


def test_a_word_is_found_in_pages_that_are_opened_from_the_folder(
    site: Path, visit: Callable[..., sync_api.Page]
) -> None:
    page = visit((site / "index.html").as_uri(), theme="light", size=(1280, 900))
    page.get_by_role("heading", name="decaysketch").first.wait_for()
    page.keyboard.press("/")
    page.keyboard.type("drop_tags", delay=20)
    page.get_by_role("link", name=re.compile("protocol", re.IGNORECASE)).first.wait_for()
