"""A browser without a window, an aggregator with data, and the page in front of both.

Chromium is Debian's, by name, and of its packages the shell that has no window and takes half the
processor time; where it is missing and this machine lets us, it is installed.
Where there is none to be had, the tests of the page are skipped, and say why.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import numpy as np
import pytest
from support import fork_server
from support.debian import program
from typer.testing import CliRunner

import decaysketch as ds
from api.__main__ import commands
from decaysketch.asyncwindow import SumParams, SumSampler
from quality.ports import free_port

ROOT = Path(__file__).parents[2]
OUT = ROOT / "out" / "page"

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
HANGS_MS = 300_000  # only what hangs takes so long
sync_api.expect.set_options(timeout=HANGS_MS)

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
NEWEST = 1_750_000_000
PARAMS = ds.SketchParams(
    max_weight=1, id_bits=40, capacity=400, seed=7, time_unit="s", value_type="float64"
)
OCTETS = {"content-type": "application/octet-stream"}


class _Pictures:
    """``make test`` takes none: nobody looks at them, and each takes processor time."""

    wanted = True


def picture(shown: sync_api.Page | sync_api.Locator, name: str, **how: Any) -> None:
    """Write a picture to look at into ``out/page``."""
    if _Pictures.wanted:
        OUT.mkdir(parents=True, exist_ok=True)
        shown.screenshot(path=OUT / name, **how)


@pytest.fixture(scope="package")  # its event loop runs until it is closed
def browser(request: pytest.FixtureRequest) -> Iterator[sync_api.Browser]:
    _Pictures.wanted = "not exhaustive" not in request.config.option.markexpr
    path = program(_NAMES, ("chromium-headless-shell", "fonts-dejavu-core"))
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def patient(browser: sync_api.Browser | sync_api.BrowserContext) -> sync_api.Page:
    """A new page, which waits as long as a busy machine needs."""
    page = browser.new_page()
    page.set_default_timeout(HANGS_MS)
    return page


# Keeps every text that a button shows, each for a moment.
SAID = """button => {
    button.said = [];
    new MutationObserver(() => button.said.push(button.textContent))
        .observe(button, { childList: true });
}"""


def copied(page: sync_api.Page, selector: str) -> str:
    """Click a button that copies, and return the text. It says for a moment that it has copied."""
    button = page.wait_for_selector(selector)
    button.evaluate(SAID)
    button.click()
    page.wait_for_function("button => button.said.includes('Copied')", arg=button)
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


@contextmanager
def visiting(browser: sync_api.Browser) -> Iterator[Callable[..., sync_api.Page]]:
    """Opens an address. At the end: no fault of a script, and no word from elsewhere."""
    contexts: list[sync_api.BrowserContext] = []
    faults: list[str] = []
    asked: list[str] = []

    def opened(
        url: str, *, theme: str = "light", size: tuple[int, int] = (1280, 900)
    ) -> sync_api.Page:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=theme,
            reduced_motion="reduce",
            permissions=["clipboard-read", "clipboard-write"],
        )
        contexts.append(context)
        page = patient(context)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.on(
            "console",
            lambda message: (
                faults.append(message.text) if "Content Security Policy" in message.text else None
            ),
        )
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []
    sent = [url for url in asked if not url.startswith(("data:", "blob:", "file:"))]
    assert {urlsplit(url).hostname for url in sent} <= {"127.0.0.1"}


@pytest.fixture
def visit(browser: sync_api.Browser) -> Iterator[Callable[..., sync_api.Page]]:
    with visiting(browser) as opened:
        yield opened


@pytest.fixture(scope="module")
def functions(browser: sync_api.Browser, site: Site) -> Iterator[sync_api.Page]:
    """A page whose functions are called, one for all tests of a file."""
    with visiting(browser) as opened:
        yield opened(site.url)


@dataclass(frozen=True)
class Site:
    """A running aggregator, and the sketch of its stream ``ward-7``."""

    url: str
    http: httpx2.Client
    sketch: ds.DecaySketch


@contextmanager
def serving(data: Path, **environment: str) -> Iterator[tuple[str, httpx2.Client]]:
    """``python -m api`` on a free port."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    log = data.with_suffix(".log")
    process = fork_server.start(["--port", str(port), "--data", str(data)], log, environment)
    try:
        with httpx2.Client(base_url=url, trust_env=False, timeout=60) as client:
            deadline = time.monotonic() + 1800  # for what hangs
            while True:
                try:
                    client.get("/healthz").raise_for_status()
                    break
                except httpx2.TransportError:
                    assert process.poll() is None, log.read_text()
                    assert time.monotonic() < deadline, log.read_text()
                    time.sleep(0.05)
            yield url, client
    finally:
        process.terminate()
        try:
            process.wait(600)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def mint(data: Path) -> str:
    """An administrator's key to the aggregator over a database."""
    arguments = ["keys", "mint", "--role", "admin", "--data", str(data)]
    with ThreadPoolExecutor(1) as thread:  # the browser's event loop runs in this one
        made = thread.submit(CliRunner().invoke, commands, arguments).result()
    assert made.exit_code == 0, made.output
    return made.stdout.split()[0]


def _build() -> ds.DecaySketch:
    """Two hours of readings, more than the sketch keeps all of."""
    draw = np.random.default_rng(3)
    rows = 4000
    sketch = ds.DecaySketch(PARAMS)
    values = np.round(draw.normal(20, 3, rows))
    sketch.update(values, 1, NEWEST - draw.integers(0, 7200, rows), np.arange(rows))
    sketch.update([20.0], 1, [NEWEST], [rows])
    return sketch


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("page") / "data.sqlite3") as (url, http):
        sketch = _build()
        http.put("/v1/streams/ward-7", json={"params": PARAMS.to_dict()}).raise_for_status()
        for source in ("gateway-1", "gateway-2"):
            _post(http, "ward-7", source, sketch.to_bytes())

        window = SumParams(max_sum=10**9, capacity=100, max_window=3600, time_unit="s")
        created = {"family": "sum", "params": window.to_dict()}
        http.put("/v1/streams/tap-sums", json=created).raise_for_status()
        sampler = SumSampler(window, source="tap")
        sampler.update(np.arange(1, 501), NEWEST - np.arange(500))
        _post(http, "tap-sums", "tap", sampler.to_bytes())

        fixed = {
            "family": "integral",
            "params": PARAMS.to_dict(),
            "decay": {"kind": "window", "width": 3600},
        }
        http.put("/v1/streams/alarms", json=fixed).raise_for_status()
        yield Site(url, http, sketch)


def _post(http: httpx2.Client, stream: str, source: str, body: bytes) -> None:
    path = f"/v1/streams/{stream}/sketches"
    http.post(path, params={"source": source}, content=body, headers=OCTETS).raise_for_status()
