"""Alerts, sources and the state of the service on the page, over sites that report as sites do."""

from __future__ import annotations

import csv
import json
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

import decaysketch as ds
from decaysketch.client.topk import TopKSensor

from .conftest import OCTETS, copied, mint, picture, serving, sync_api

axe_playwright = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
)

PARAMS = ds.SketchParams(
    max_weight=1, id_bits=40, capacity=4000, seed=7, time_unit="s", value_type="float64"
)
STREAM = "/v1/streams/ward-7"
SIZES = {"wide": (1280, 900), "phone": (390, 844)}
FAR = {"kind": "threshold", "question": "count", "above": 1e6, "decay": "none", "lease_s": 3}


@dataclass
class Sites:
    """Sites of a stream that report several times a second, those that are alive."""

    http: httpx2.Client
    alive: set[str]
    held: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    seq: int = 0
    ids: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stopped.wait(0.3):
            for source in sorted(self.alive):
                self.seq += 1
                report = {"inc": 1, "seq": self.seq, "held": self.held.get(source, {})}
                answer = self.http.post(f"{STREAM}/reports", params={"source": source}, json=report)
                if answer.status_code == 200:
                    self.held[source] = {
                        each["monitor"]: [each["epoch"], each["serial"]]
                        for each in answer.json()["grants"]
                    }

    def post(self, source: str, rows: int, age_s: int = 0) -> httpx2.Response:
        sketch = self.sketch(rows, age_s)
        answer: httpx2.Response = self.http.post(
            f"{STREAM}/sketches",
            params={"source": source},
            content=sketch.to_bytes(),
            headers=OCTETS | self.report(source),
        )
        return answer

    def sketch(self, rows: int, age_s: int) -> ds.DecaySketch:
        sketch = ds.DecaySketch(PARAMS)
        ids = self.ids + np.arange(rows)
        self.ids += rows
        sketch.update(np.zeros(rows) + ids % 7, 1, np.full(rows, int(time.time()) - age_s), ids)
        return sketch

    def report(self, source: str) -> dict[str, str]:
        """The headers of a post that is a report as well."""
        self.seq += 1
        held = ",".join(f"{m}:{e}.{s}" for m, (e, s) in self.held.get(source, {}).items())
        return {"Decaysketch-Site": f"1.{self.seq}", "Decaysketch-Grants": held}


@dataclass(frozen=True)
class Ward:
    """An aggregator with two sites that report, and one that is only refused; to another stream
    two sources posted a few times and then never again."""

    url: str
    http: httpx2.Client
    sites: Sites


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    with serving(tmp_path_factory.mktemp("ward") / "data.sqlite3") as (url, http):
        http.put(STREAM, json={"params": PARAMS.to_dict()}).raise_for_status()
        with httpx2.Client(base_url=url, trust_env=False, timeout=60) as own:
            sites = Sites(own, {"gateway-1", "gateway-2"})
            for number, source in enumerate(sorted(sites.alive)):
                sites.post(source, 100, age_s=300 * number).raise_for_status()
            refused = http.post(
                f"{STREAM}/sketches",
                params={"source": "gateway-9"},
                content=b"no sketch",
                headers=OCTETS,
            )
            assert refused.status_code == 422
            http.put("/v1/streams/ward-8", json={"params": PARAMS.to_dict()}).raise_for_status()
            for source, age_s in 4 * [("early", -130), ("late", 300)]:
                http.post(
                    "/v1/streams/ward-8/sketches",
                    params={"source": source},
                    content=sites.sketch(1, age_s).to_bytes(),
                    headers=OCTETS,
                ).raise_for_status()
            reporting = threading.Thread(target=sites.run)
            reporting.start()
            yield Ward(url, http, sites)
            sites.stopped.set()
            reporting.join()


def state_of(page: sync_api.Page, state: str) -> None:
    page.wait_for_selector(f"#alert[data-state={state}]")


def test_an_alert_is_defined_fires_is_uncertain_and_is_deleted(
    visit: Callable[..., sync_api.Page], ward: Ward
) -> None:
    page = visit(f"{ward.url}/#stream=ward-7&view=alerts")
    page.click("#define-button")
    page.fill("#define-monitor", "too many")
    page.fill("#define-line", "500")
    page.click("#define .more summary")
    page.fill("#define-within", "2")
    page.keyboard.press("Enter")
    page.wait_for_selector("#define-monitor[aria-invalid=true]")
    page.fill("#define-monitor", "too-many")
    page.keyboard.press("Enter")
    page.wait_for_function(
        "() => /2/.test(document.querySelector('#define-within-fault').innerText)"
    )
    assert page.evaluate("document.activeElement.id") == "define-within"
    page.fill("#define-within", "0.1")
    page.fill("#define-webhook", "http://169.254.169.254/")
    page.keyboard.press("Enter")
    page.wait_for_selector("#define-webhook[aria-invalid=true]")
    page.fill("#define-webhook", "")
    page.fill("#define-where", "v >")
    page.keyboard.press("Enter")
    page.wait_for_function(
        "() => document.querySelector('#define').innerText.includes('v >')"
        " && document.querySelector('#define-within').ariaInvalid !== 'true'"
    )
    page.fill("#define-where", "")
    page.fill("#define-lease_s", "3")
    page.check("input[name=kind][value=window]")
    page.fill("#age-text", "2 h")
    page.keyboard.press("Tab")
    page.click("#define button[type=submit]")

    state_of(page, "calm")
    spec = ward.http.get(f"{STREAM}/monitors/too-many").json()["spec"]
    assert spec["decay"] == {"kind": "window", "width": 7200}
    assert (spec["above"], spec["within"], spec["lease_s"]) == (500, 0.1, 3)
    assert page.is_hidden("#define")
    assert "500" in page.inner_text("#alert-facts")
    ward.sites.post("gateway-1", 600).raise_for_status()
    state_of(page, "firing")
    page.wait_for_selector("#all-alerts tr[data-monitor=too-many][data-state=firing]")
    page.wait_for_function("() => document.querySelector('#alert').dataset.points > 3")
    page.wait_for_selector("#alert canvas")
    page.wait_for_function("() => / saved/.test(document.querySelector('#alert-facts').innerText)")
    drawn = page.get_attribute("#alert .chart", "aria-label") or ""
    assert "the threshold 500" in drawn

    ward.http.put(f"{STREAM}/monitors/far", json=FAR).raise_for_status()
    page.click("#own-alerts tr[data-monitor=far] button")
    state_of(page, "calm")
    ward.sites.alive.discard("gateway-2")
    # On a slow machine the other one may be silent for a moment as well.
    page.wait_for_selector("#alert[data-state=uncertain][data-silent=gateway-2]")
    expect = sync_api.expect
    expect(page.locator("#alert-facts")).to_contain_text("gateway-2")
    expect(page.locator("#alert tr[data-source=gateway-2] .pill")).to_have_text("silent")
    page.wait_for_selector("#all-alerts tr[data-monitor=far][data-state=uncertain]")
    told = "1 source has not reported within 3 s: gateway-2."
    expect(page.locator("#all-alerts")).to_contain_text(told)
    page.wait_for_function("() => document.querySelector('#alert').dataset.points > 3")
    assert (page.get_attribute("#alert .chart", "aria-label") or "").startswith("far, ")
    picture(page, "alert-uncertain.png", full_page=True)
    ward.sites.alive.add("gateway-2")
    state_of(page, "calm")

    page.reload()
    page.wait_for_selector("#alert[data-monitor=far]")
    page.click("#alert-delete")
    page.click("dialog button:text('Cancel')")
    assert ward.http.get(f"{STREAM}/monitors/far").status_code == 200
    page.click("#alert-delete")
    page.click("dialog button.danger")
    page.wait_for_selector("#alert[data-monitor=too-many]")
    assert ward.http.get(f"{STREAM}/monitors/far").status_code == 404
    ward.http.delete(f"{STREAM}/monitors/too-many").raise_for_status()
    page.wait_for_selector("#alert", state="hidden")
    page.wait_for_selector("#alerts", state="hidden")


def test_an_alert_has_a_past_and_no_word_of_sources_where_none_takes_part(
    visit: Callable[..., sync_api.Page], ward: Ward
) -> None:
    """The chart begins before the page was opened, with the states that the server retains."""
    name, path = "ward-9", "/v1/streams/ward-9"
    ward.http.put(path, json={"params": PARAMS.to_dict()}).raise_for_status()

    def post(value: float, ages: list[int]) -> None:
        sketch = ds.DecaySketch(PARAMS)
        now = int(time.time())
        ids = 10**9 + ward.sites.ids + np.arange(len(ages))
        ward.sites.ids += len(ages)
        sketch.update([value] * len(ages), 1, [now - age for age in ages], ids)
        posting = {"source": "a"}, sketch.to_bytes()
        ward.http.post(
            f"{path}/sketches", params=posting[0], content=posting[1], headers=OCTETS
        ).raise_for_status()

    post(10.0, list(range(1, 800)))
    spec = {"kind": "threshold", "question": "mean", "above": 25, "decay": "window(1h)"}
    monitor = f"{path}/monitors/hot"
    ward.http.put(monitor, json=spec).raise_for_status()
    for value, state in ((400.0, "firing"), (-400.0, "calm")):
        post(value, [0] * 100)
        deadline = time.monotonic() + 600  # for what hangs
        while ward.http.get(monitor).json()["state"] != state:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    for theme, (width, height) in (("light", (1280, 900)), ("dark", (390, 844))):
        page = visit(f"{ward.url}/#stream={name}&view=alerts", theme=theme, size=(width, height))
        page.wait_for_selector("#alert[data-monitor=hot][data-states='uncertain calm firing calm']")
        page.wait_for_function("() => document.querySelector('#alert').dataset.points > 100")
        drawn = page.get_attribute("#alert .chart", "aria-label") or ""
        begins, ends = (
            datetime.fromisoformat(each) for each in re.findall(r"[0-9-]+ [0-9:]+", drawn)
        )
        assert (ends - begins).total_seconds() > 800
        shown = page.inner_text("#alert")
        for word in ("lease", "allowance", "renewals", "held back", "site"):
            assert word not in shown.lower()
        assert "below the threshold 25." in page.inner_text("#alert-state")
        rows = page.locator("#alert .changes tbody tr")
        assert [rows.nth(n).get_attribute("data-state") for n in range(2)] == ["calm", "firing"]
        _fits(page, f"alert-history-{theme}", width)
    with page.expect_download() as saving:
        page.click("#alert .takings button:text('CSV')")
    assert "at or above the threshold 25" in Path(saving.value.path()).read_text()
    page.click("#define-button")
    page.wait_for_selector("#define-question option[value=count]", state="attached")
    options = page.eval_on_selector_all("#define-question option", "all => all.map(o => o.value)")
    assert {"count", "mean", "quantile", "rate"} <= set(options)
    assert "max" not in options  # of which this family knows nothing
    ward.http.delete(path).raise_for_status()


def test_sources_are_watched_put_in_order_revoked_and_reinstated(
    visit: Callable[..., sync_api.Page], ward: Ward, tmp_path: Path
) -> None:
    page = visit(f"{ward.url}/#stream=ward-7")
    page.wait_for_selector("[data-figure=count] .value")
    page.check("#views input[value=sources]")
    row = "#sources tr[data-source='{}']".format
    page.wait_for_selector(row("gateway-9"))
    refused = page.inner_text(f"{row('gateway-9')} [data-label=Refused]")
    assert "1 × The body is not a valid sketch" in refused
    assert "last " in refused
    assert page.locator(f"{row('gateway-9')} [title=corrupt-sketch]").count() == 1  # of metrics
    assert page.get_attribute(row("gateway-9"), "data-state") == "nothing taken"
    assert "half within 10" in page.inner_text(row("gateway-2"))

    names = "rows => rows.map(row => row.dataset.source)"
    page.click("#sources thead button:text-is('Refused')")
    page.click("#sources thead button:text-is('Refused')")
    assert page.get_attribute("#sources th[aria-sort]", "aria-sort") == "descending"
    assert page.eval_on_selector_all("#sources tbody tr", names)[0] == "gateway-9"
    ward.sites.post("gateway-2", 5).raise_for_status()  # shown anew, in the same order
    page.wait_for_selector(f"{row('gateway-2')} [data-label=Posts]:text-is('2')")
    assert page.eval_on_selector_all("#sources tbody tr", names)[0] == "gateway-9"
    with page.expect_download() as saving:
        page.click("#sources .takings button:text('CSV')")
    saving.value.save_as(tmp_path / "sources.csv")
    with (tmp_path / "sources.csv").open(newline="") as file:
        held = {each["Source"]: each for each in csv.DictReader(file)}
    assert (held["gateway-9"]["Refused"], held["gateway-9"]["Posts"]) == ("1", "0")
    assert held["gateway-2"]["Posts"] == "2"

    page.focus("#sources button[aria-label='Revoke gateway-2']")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog")
    assert page.evaluate("document.activeElement.innerText") == "Cancel"
    page.keyboard.press("Escape")
    assert ward.http.get(STREAM).json()["revoked"] == []
    page.click("#sources button[aria-label='Revoke gateway-2']")
    page.click("dialog button.danger")
    page.wait_for_selector("#sources tr[data-source=gateway-2][data-state=revoked]")
    assert ward.http.get(STREAM).json()["revoked"] == ["gateway-2"]
    page.click("#sources button[aria-label='Reinstate gateway-2']")
    page.click("dialog button.danger")
    page.wait_for_selector("#sources button[aria-label='Revoke gateway-2']")
    assert ward.http.get(STREAM).json()["revoked"] == []


def test_of_a_source_it_is_told_that_it_is_silent_and_whose_clock_is_off(
    visit: Callable[..., sync_api.Page], ward: Ward
) -> None:
    page = visit(f"{ward.url}/#stream=ward-8&view=sources")
    row = "#sources tr[data-source={}]".format
    page.wait_for_selector(f"{row('early')}[data-state=silent]")
    page.wait_for_function(
        "() => document.querySelector('#sources-says').innerText.startsWith('Silent: early, late.')"
    )
    clock = "{} [data-label=Clock]".format
    assert page.inner_text(clock(row("early"))).startswith("ahead, by 2.1")
    assert page.inner_text(clock(row("late"))).startswith("behind by 5")
    picture(page, "sources-silent.png", full_page=True)


def test_a_list_is_shown_with_its_certificate(
    visit: Callable[..., sync_api.Page], ward: Ward
) -> None:
    path, now = f"{STREAM}/topk/talkers", int(time.time())
    spec = {"k": 2, "decay": "window(1h)", "sites": ["a", "b", "c"], "round_s": 1}
    ward.http.put(path, json=spec).raise_for_status()
    counts = {"a": {"x": 9, "y": 5, "p": 4, "q": 1}, "b": {"z": 8, "y": 5, "p": 3, "r": 1}}
    sites = [TopKSensor(ward.http, "ward-7", "talkers", name) for name in counts]
    for site, items in zip(sites, counts.values(), strict=True):
        for item, count in items.items():
            site.update([item] * count, [now - 9] * count)
    page = visit(f"{ward.url}/#stream=ward-7&view=lists", theme="dark")
    page.wait_for_selector(".list[data-list=talkers]")
    assert "no list yet" in page.inner_text(".list")
    shown = "list => [list.dataset.certain, list.dataset.without]"
    rows = "rows => rows.map(row => ({...row.dataset}))"
    largest = [
        {"item": "y", "lower": "10", "upper": "10"},
        {"item": "x", "lower": "9", "upper": "9"},
    ]
    deadline = time.monotonic() + 600  # for what hangs
    while page.eval_on_selector(".list", shown) != ["true", "c"] or (
        page.eval_on_selector_all(".list tbody tr", rows) != largest
    ):
        assert time.monotonic() < deadline
        for site in sites:
            site.step()
        time.sleep(0.05)
    said = page.inner_text(".list")
    assert "the 2 largest counts of all sites but c, each exactly" in said
    _fits(page, "lists", 1280)
    page.click("button[aria-label='Delete talkers']")
    page.click("dialog button.danger")
    page.wait_for_selector("#no-lists")
    assert ward.http.get(path).status_code == 404


def test_a_chart_stays_while_its_answer_is_awaited_or_refused(
    visit: Callable[..., sync_api.Page], ward: Ward
) -> None:
    page = visit(f"{ward.url}/#stream=ward-7")
    page.wait_for_function("() => document.querySelector('#count-panel').dataset.points > 1")
    canvas = page.wait_for_selector("#count-chart canvas")
    assert canvas is not None
    waiting: list[Any] = []
    refusing: list[bool] = []

    def refuse(route: Any) -> None:
        route.fulfill(
            status=503, content_type="application/problem+json", body='{"detail": "not now"}'
        )

    def hold(route: Any) -> None:
        if "times" not in route.request.post_data:
            route.continue_()
        elif refusing:
            refuse(route)
        else:
            waiting.append(route)

    page.route("**/query", hold)
    page.check("input[name=kind][value=window]")
    page.wait_for_selector("#count-panel.old")
    assert "asking" in page.inner_text("#count-panel .age")
    assert "drawn at" in page.inner_text("#count-panel .age")
    assert canvas.is_visible()
    refusing.append(True)  # those that come after, too
    for route in waiting:
        refuse(route)
    page.wait_for_function("() => /not now/.test(document.querySelector('#count-panel').innerText)")
    assert canvas.is_visible()
    page.unroute("**/query")
    page.check("input[name=kind][value=exponential]")
    page.wait_for_selector("#count-panel:not(.old)")
    assert page.is_hidden("#count-panel .note")
    assert page.is_visible("#count-chart canvas")


def test_what_a_panel_asks_can_be_asked_by_curl(
    visit: Callable[..., sync_api.Page], ward: Ward
) -> None:
    page = visit(f"{ward.url}/#stream=ward-7")
    page.wait_for_selector("[data-figure=count] .value")
    page.select_option("#any-question", "selectivity")
    page.wait_for_selector("#any-panel .found[data-aggregate=selectivity]")
    predicate = "v > 3 and w != 2"
    with page.expect_response(lambda sent: predicate in (sent.request.post_data or "")) as answered:
        page.fill("#any-panel input[name=predicate]", predicate)
    value = answered.value.json()["answers"][0]["estimate"]["value"]
    shown = page.locator("#any-panel .found tbody tr").first
    sync_api.expect(shown).to_contain_text(f"{value:.4g}"[:4])
    command = copied(page, "#any-panel .takings button:text('curl')")
    said = shlex.split(command.replace("\\\n", " "))
    assert said[0] == "curl"
    assert said[2].startswith(f"{ward.url}/v1/streams/ward-7/")
    assert "Authorization" not in " ".join(said)
    body = json.loads(said[said.index("-d") + 1])
    assert body["queries"][0]["predicate"] == predicate
    answer = ward.http.post(said[2], json=body).json()["answers"][0]
    assert shown.inner_text().split()[0][:4] == f"{answer['estimate']['value']:.4g}"[:4]


def test_a_file_has_no_formula_and_a_command_no_way_out(
    visit: Callable[..., sync_api.Page], ward: Ward
) -> None:
    page = visit(f"{ward.url}/#stream=ward-7")
    text = page.evaluate(
        "async () => (await import('/assets/taking.js')).csvOf({columns: ['a', 'b'],"
        " rows: [['=1+1', -5], ['x,\"y\"', null], ['@cmd', 0.1], ['\\uff1d1', 2], [' +1', 3]]})"
    )
    assert text == ('a,b\r\n\'=1+1,-5\r\n"x,""y""",\r\n\'@cmd,0.1\r\n\'\uff1d1,2\r\n\' +1,3\r\n')
    command = page.evaluate(
        "async () => (await import('/assets/taking.js')).curlOf("
        "{path: '/v1/x', body: {q: \"'; rm -rf ~; '\"}})"
    )
    said = shlex.split(command.replace("\\\n", " "))
    assert json.loads(said[-1]) == {"q": "'; rm -rf ~; '"}


def test_the_state_of_the_service_is_a_button_away(
    visit: Callable[..., sync_api.Page], ward: Ward
) -> None:
    page = visit(f"{ward.url}/#stream=ward-7")
    page.click("#service-button")
    page.wait_for_selector("#service[data-ready=true]")
    said = page.inner_text("#service-facts")
    for part in (f"decaysketch {ds.__version__}", "free of", "Last post", "Backlog"):
        assert part in said
    assert "The body is not a valid sketch" in page.inner_text("#service-refused")
    assert page.locator("#service-refused [title=corrupt-sketch]").count() == 1
    page.click("#service-button")
    assert page.is_hidden("#service")


def test_streams_are_put_in_order_by_a_heading(
    visit: Callable[..., sync_api.Page], ward: Ward
) -> None:
    ward.http.put("/v1/streams/empty", json={"params": PARAMS.to_dict()}).raise_for_status()
    page = visit(f"{ward.url}/#stream=ward-7")
    page.wait_for_selector("tr[data-stream=ward-7]")
    names = "rows => rows.map(row => row.dataset.stream)"
    assert page.eval_on_selector_all("#streams tbody tr", names) == ["empty", "ward-7", "ward-8"]
    page.click("#streams thead button:text-is('Rows')")
    page.click("#streams thead button:text-is('Rows')")
    assert page.eval_on_selector_all("#streams tbody tr", names) == [
        "ward-7", "ward-8", "empty"
    ]  # fmt: skip
    ward.http.delete("/v1/streams/empty").raise_for_status()


@pytest.mark.parametrize(("theme", "size"), [("light", "wide"), ("dark", "phone")])
def test_what_an_operator_sees_is_accessible_and_fits(
    visit: Callable[..., sync_api.Page], ward: Ward, theme: str, size: str
) -> None:
    ward.http.put(f"{STREAM}/monitors/far", json=FAR).raise_for_status()
    page = visit(f"{ward.url}/#stream=ward-7&view=alerts", theme=theme, size=SIZES[size])
    state_of(page, "calm")
    page.wait_for_function("() => document.querySelector('#alert').dataset.points > 2")
    page.click("#define-button")
    page.click("#service-button")
    page.wait_for_selector("#service[data-ready=true]")
    _fits(page, f"alerts-{theme}-{size}", SIZES[size][0])
    page.click("#service-button")
    page.check("#views input[value=sources]")
    page.wait_for_selector("#sources tr[data-source=gateway-9]")
    _fits(page, f"sources-{theme}-{size}", SIZES[size][0])
    page.click("#sources button[aria-label='Revoke gateway-1']")
    page.wait_for_selector("dialog")
    _fits(page, f"dialog-{theme}-{size}", SIZES[size][0])
    ward.http.delete(f"{STREAM}/monitors/far").raise_for_status()


def _fits(page: sync_api.Page, name: str, width: int) -> None:
    picture(page, f"{name}.png", full_page=True)
    violations = axe_playwright.Axe().run(page).response["violations"]
    assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in violations] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_who_may_only_read_is_offered_nothing_else_and_his_key_is_in_no_command(
    visit: Callable[..., sync_api.Page], tmp_path: Path
) -> None:
    data = tmp_path / "keys.sqlite3"
    with serving(data, DECAYSKETCH_AUTH="keys") as (url, http):
        admin = {"Authorization": f"Bearer {mint(data)}"}
        http.put(STREAM, json={"params": PARAMS.to_dict()}, headers=admin).raise_for_status()
        http.put(f"{STREAM}/monitors/far", json=FAR, headers=admin).raise_for_status()
        made = http.post(
            "/v1/keys", json={"role": "read", "scope": ["ward-*"]}, headers=admin
        ).json()
        page = visit(f"{url}/#stream=ward-7&view=alerts")
        page.fill("#key", made["key"])
        page.click("#key-form button")
        page.wait_for_selector("#alert[data-monitor=far]")
        state_of(page, "calm")  # no site, nothing held back
        page.wait_for_function("() => document.querySelector('#alert').dataset.points > 0")
        assert page.is_hidden("#define-button")
        assert page.is_hidden("#alert-delete")
        command = copied(page, "#alert .takings button:text('curl')")
        assert "Bearer $DECAYSKETCH_KEY" in command
        assert made["key"] not in command
        page.click("#service-button")
        page.wait_for_function(
            "() => /every stream/.test(document.querySelector('#service').innerText)"
        )
        page.check("#views input[value=sources]")
        page.wait_for_function("() => document.querySelector('#sources').dataset.count === '0'")
        assert page.locator("#sources button:text('Revoke')").count() == 0
