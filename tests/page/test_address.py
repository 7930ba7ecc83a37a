"""The address is what is chosen: it is kept, and what it names and is not there is said."""

from __future__ import annotations

from collections.abc import Callable

from .conftest import PARAMS, Site, picture, sync_api

LOOK_MS = 3_500  # the next look at the streams is over


def said(page: sync_api.Page, name: str) -> None:
    """It is said that a stream is not there, none is open in its place, and the address stays."""
    page.wait_for_selector("#no-such-stream:not(:empty)")
    page.wait_for_timeout(LOOK_MS)
    expected = f"There is no stream '{name}': choose one of these."
    assert page.inner_text("#no-such-stream") == expected
    assert page.is_hidden("#detail")
    assert page.evaluate("location.hash").startswith(f"#stream={name}")


def test_a_stream_that_there_is_not_is_said_and_no_other_is_opened(
    visit: Callable[..., sync_api.Page], site: Site
) -> None:
    page = visit(f"{site.url}/#stream=nosuch&now=live")
    said(page, "nosuch")
    assert page.evaluate("location.hash") == "#stream=nosuch&now=live"
    picture(page, "no-such-stream.png")
    page.click("tr[data-stream=ward-7] button")
    page.wait_for_selector("[data-figure=count] .value")
    assert page.inner_text("#no-such-stream") == ""
    page.wait_for_function("() => location.hash.startsWith('#stream=ward-7')")


def test_a_stream_that_is_created_later_is_opened_then(
    visit: Callable[..., sync_api.Page], site: Site
) -> None:
    page = visit(f"{site.url}/#stream=later")
    said(page, "later")
    site.http.put("/v1/streams/later", json={"params": PARAMS.to_dict()}).raise_for_status()
    sync_api.expect(page.locator("#stream-name")).to_have_text("later")
    assert page.inner_text("#no-such-stream") == ""
    site.http.delete("/v1/streams/later").raise_for_status()
    said(page, "later")  # and what was open of it is not


def test_an_address_that_is_written_into_an_open_page_is_followed(
    visit: Callable[..., sync_api.Page], site: Site
) -> None:
    page = visit(f"{site.url}/#stream=ward-7")
    page.wait_for_selector("[data-figure=count] .value")
    page.evaluate("() => { location.hash = '#stream=tap-sums'; }")
    sync_api.expect(page.locator("#stream-name")).to_have_text("tap-sums")
    # Sharing writes the address at once, as the page does by itself soon after a choice.
    written = "location.hash = '#stream=nosuch'; document.getElementById('share').click();"
    page.evaluate(f"() => {{ {written} }}")
    said(page, "nosuch")


def test_an_address_of_no_stream_opens_the_one_of_most_rows(
    visit: Callable[..., sync_api.Page], site: Site
) -> None:
    page = visit(site.url)
    sync_api.expect(page.locator("#stream-name")).to_have_text("ward-7")
    assert page.inner_text("#no-such-stream") == ""
