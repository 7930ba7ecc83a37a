"""API keys and addresses: neither is shown by a message."""

from __future__ import annotations

import pytest

from decaysketch.client.access import bearer, has_secret, is_secret, plain_url
from decaysketch.errors import ParameterError


@pytest.mark.parametrize("text", ["ds_1_2", " ds_1_2\n", "ds_1_2\r\n"])
def test_a_key_of_one_line(text: str) -> None:
    assert bearer(text, "here") == "Bearer ds_1_2"


@pytest.mark.parametrize("text", ["first\nsecond", "fir st", "first\x7f", "first\ufffd", "", "\n"])
def test_anything_else_is_no_key_and_not_shown(text: str) -> None:
    with pytest.raises(ParameterError, match=r"^the file k contains no API key") as caught:
        bearer(text, "the file k")
    assert "fir" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://h", "https://aggregator.example/base/", "http://[::1]:8000"]
)
def test_a_plain_address(url: str) -> None:
    assert plain_url(url, "url") == url


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://me:hunter2@h", "has a user name or password"),
        ("http://hunter2@h", "has a user name or password"),
        ("me:hunter2@h", "is not an address such as"),
        ("hunter2:8000", "is not an address such as"),
        ("ftp://hunter2", "is not an address such as"),
        ("http://[hunter2", "is not an address such as"),
        ("http://hunter2:x", "is not an address such as"),
        ("http://", "is not an address such as"),
    ],
)
def test_another_address_is_refused_and_not_shown(url: str, message: str) -> None:
    with pytest.raises(ParameterError, match=f"^--url {message}") as caught:
        plain_url(url, "--url")
    assert "hunter2" not in str(caught.value)


def test_names_of_secrets() -> None:
    for name in ("key", "apiKey", "api_key", "idKey", "id-key", "BEARER", "secret", "password"):
        assert is_secret(name)
    for name in ("keyFile", "keyVariable", "stream", "url", "sourceBy"):
        assert not is_secret(name)


@pytest.mark.parametrize(
    ("uri", "secret"),
    [
        ("s3://AKIA:SECRET@bucket/log", True),
        ("abfs://c@a.dfs.core.windows.net/log?client_secret=x", True),
        ("abfss://container@account.dfs.core.windows.net/log", False),
        ("s3://bucket/a:b@c?region=eu", False),
        ("/a/b:c@d", False),
    ],
)
def test_secrets_in_the_name_of_a_log(uri: str, secret: bool) -> None:
    assert has_secret(uri) == secret
