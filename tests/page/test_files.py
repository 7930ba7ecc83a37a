"""What the page consists of, and how it is served; without a browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from api.http import problems
from api.routes import page

FOLDER = Path(page.__file__).parents[1] / "page"
FILES = sorted(
    each.relative_to(FOLDER).as_posix()
    for each in FOLDER.rglob("*")
    if each.is_file() and each.name != "README.md"
)
OURS = [name for name in FILES if not name.startswith("vendor/")]


@pytest.fixture
def client() -> TestClient:
    app = FastAPI()
    app.include_router(page.router)
    problems.install(app)
    return TestClient(app)


def path_of(name: str) -> str:
    return "/" if name == "index.html" else f"/assets/{name}"


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_served_and_revalidated(client: TestClient, name: str) -> None:
    answer = client.get(path_of(name))
    assert answer.status_code == 200
    assert answer.content == (FOLDER / name).read_bytes()
    assert answer.headers["cache-control"] == "no-cache"
    again = client.get(path_of(name), headers={"If-None-Match": f'"x", W/{answer.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == answer.headers["etag"]
    assert client.get(path_of(name), headers={"If-None-Match": '"x"'}).status_code == 200


@pytest.mark.parametrize(
    "path",
    ["/assets/", "/assets/index.html", "/assets/README.md", "/assets/%2e%2e/app.py", "/assets/x"],
)
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_modules_are_javascript_and_the_page_is_html(client: TestClient) -> None:
    assert client.get("/").headers["content-type"] == "text/html; charset=utf-8"
    assert client.get("/assets/app.js").headers["content-type"] == "text/javascript; charset=utf-8"


def test_no_script_and_no_style_is_inside_the_html() -> None:
    html = (FOLDER / "index.html").read_text()
    assert re.findall(r"<style|\sstyle=|\son[a-z]+=|javascript:", html) == []
    assert re.findall(r"<script[^>]*>([^<]*)", html) == [""]


@pytest.mark.parametrize("name", OURS)
def test_nothing_is_named_that_lies_elsewhere(name: str) -> None:
    text = (FOLDER / name).read_text().replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"https?://|[\"'(]//|\beval\(|new Function|innerHTML", text) == []


@pytest.mark.parametrize("name", [name for name in OURS if name.endswith((".js", ".html"))])
def test_what_is_loaded_is_served(client: TestClient, name: str) -> None:
    text = (FOLDER / name).read_text()
    loaded = re.findall(r'from "\./([^"]+)"', text) + re.findall(r'"/assets/([^"]+)"', text)
    assert [each for each in loaded if client.get(f"/assets/{each}").status_code != 200] == []
