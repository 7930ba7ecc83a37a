"""Settings: the command line, the environment, the file, and what is outside their domain."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.rows import for_each

from api.resources import FOLLOWING, bound_bytes
from api.settings import Settings, SettingsError

MIB = 1024 * 1024


def test_defaults_are_safe() -> None:
    settings = Settings.from_environment({})
    assert settings == Settings()
    assert (settings.host, settings.port, settings.workers) == ("127.0.0.1", 8000, 1)
    assert (settings.max_body_bytes, settings.max_inflated_bytes) == (32 * MIB, 64 * MIB)
    assert (settings.queue_posts, settings.queue_bytes) == (1024, 256 * MIB)
    assert settings.max_clock_skew_s == 300
    assert settings.database_url == "sqlite:///aggregator.sqlite3"


def test_the_process_is_not_asked_behind_the_back_of_who_constructs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DECAYSKETCH_PORT", "9000")
    assert Settings().port == 8000
    assert Settings.from_environment().port == 9000


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().port = 1  # type: ignore[misc]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "aggregator.toml"


def test_what_wins(file: Path) -> None:
    file.write_text('port = 1\nworkers = 2\ndata = "file.sqlite3"\nmax_queries = 4\n')
    environment = {
        "DECAYSKETCH_CONFIG": str(file),
        "DECAYSKETCH_WORKERS": "3",
        "DECAYSKETCH_DATA": "environment.sqlite3",
        "PORT": "5",
    }
    settings = Settings.from_environment(environment, data="option.sqlite3", port=None)
    assert settings == Settings(port=1, workers=3, data="option.sqlite3", max_queries=4)


def test_the_file_of_the_command_line_is_read_instead_of_that_of_the_environment(
    file: Path, tmp_path: Path
) -> None:
    file.write_text("port = 1")
    absent = {"DECAYSKETCH_CONFIG": str(tmp_path / "absent.toml")}
    assert Settings.from_environment(absent, config=str(file)) == Settings(port=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port = 70000", "port in {} is 70000; expected an integer from 0 to 65535"),
        ("prot = 7000", "prot in {} is not a setting; expected one of "),
        ("[server]\nport = 1", "server in {} is not a setting; expected one of "),
        ("port = ", "config is '{}'; expected TOML: Invalid value"),
        (None, "config is '{}'; expected a readable file: No such file or directory"),
    ],
)
def test_a_file_that_is_refused(file: Path, text: str | None, message: str) -> None:
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingsError) as refused:
        Settings.from_environment({"DECAYSKETCH_CONFIG": str(file)})
    assert str(refused.value).startswith(message.format(file))


@for_each(
    "environment, options, message",
    [
        (
            {"DECAYSKETCH_PORT": "http"},
            {},
            "DECAYSKETCH_PORT is 'http'; expected an integer from 0 to 65535",
        ),
        (
            {"DECAYSKETCH_PORT": "65536"},
            {},
            "DECAYSKETCH_PORT is '65536'; expected an integer from 0 to 65535",
        ),
        ({"DECAYSKETCH_DATA": ""}, {}, "DECAYSKETCH_DATA is ''; expected a text that is not empty"),
        ({}, {"port": 65536}, "port is 65536; expected an integer from 0 to 65535"),
        ({}, {"max_queries": -1}, "max_queries is -1; expected an integer from 1 to 2000"),
        ({}, {"workers": 0}, "workers is 0; expected an integer from 1 to 64"),
        (
            {},
            {"max_body_bytes": "1 MB"},
            "max_body_bytes is '1 MB'; expected an integer from 1 to 2147483648 "
            "(or such as 64 MiB)",
        ),
        ({}, {"auth": "none"}, "auth is 'none'; expected one of keys, off, auto"),
        (
            {},
            {"max_clock_skew_s": "nan"},
            "max_clock_skew_s is 'nan'; expected a number from 0 to 1e+09 or off",
        ),
        ({}, {"upstream": "hub"}, "upstream is not https://HOST/... or http://HOST/..."),
        ({}, {"upstream": "http://u:secret@hub"}, "upstream has a user, a fragment or a backsl"),
        ({}, {"upstream": "http://hub"}, "upstream_source is ''; expected 1 to 100 printable"),
        (
            {"DECAYSKETCH_UPSTREAM_KEY": "a b"},
            {"upstream": "http://hub", "upstream_source": "site"},
            "DECAYSKETCH_UPSTREAM_KEY has a character that no key has",
        ),
        ({}, {"log_level": "loud"}, "log_level is 'loud'; expected one of debug, info, "),
    ],
)
def test_outside_their_domain(
    environment: dict[str, str], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)):
        Settings.from_environment(environment, **options)


def test_what_the_environment_can_say_in_words() -> None:
    settings = Settings.from_environment(
        {
            "DECAYSKETCH_QUEUE_BYTES": "1 GiB",
            "DECAYSKETCH_COMPACT_BYTES": "4096kib",
            "DECAYSKETCH_MAX_CLOCK_SKEW_S": "off",
            "DECAYSKETCH_AUTH": "auto",
            "DECAYSKETCH_LOG_FORMAT": "auto",
        }
    )
    assert (settings.queue_bytes, settings.compact_bytes) == (1024 * MIB, 4 * MIB)
    assert (settings.max_clock_skew_s, settings.auth, settings.log_format) == (None, None, None)


def test_workers_are_given_the_same_settings() -> None:
    settings = Settings(
        data="postgresql://u:p@h/d", max_clock_skew_s=None, auth="keys", rate_per_s=0.1, port=0
    )
    assert Settings.from_environment(settings.to_environment()) == settings
    assert Settings.from_environment(Settings().to_environment()) == Settings()


@pytest.mark.parametrize(
    ("data", "url"),
    [
        ("a b.sqlite3", "sqlite:///a b.sqlite3"),
        ("/var/lib/x?y=1", "sqlite:////var/lib/x%3Fy%3D1"),
        ("sqlite:///x.sqlite3", "sqlite:///x.sqlite3"),
        ("sqlite+aiosqlite:///x.sqlite3", "sqlite:///x.sqlite3"),
        ("postgres://u:p%40w@h:1/d", "postgresql+psycopg://u:p%40w@h:1/d"),
        ("postgresql://h/d?sslmode=require", "postgresql+psycopg://h/d?sslmode=require"),
        ("postgresql+psycopg://h/d", "postgresql+psycopg://h/d"),
    ],
)
def test_the_url_of_the_database(data: str, url: str) -> None:
    assert Settings(data=data).database_url == url


@pytest.mark.parametrize("data", ["mysql://h/d", "postgresql://u:secret@h:port/d", "://"])
def test_a_url_that_cannot_be_read(data: str) -> None:
    with pytest.raises(SettingsError, match="data is a URL of") as refused:
        Settings(data=data)
    assert "secret" not in str(refused.value)


def test_a_password_is_not_shown() -> None:
    settings = Settings(data="postgresql://u:secret@h/d")
    assert "secret" not in repr(settings)
    assert settings.place == "postgresql+psycopg://u:***@h/d"
    assert Settings(data="x.sqlite3").place == "x.sqlite3"


@pytest.mark.parametrize(
    ("host", "auth", "required"),
    [
        ("localhost", None, False),
        ("127.3.2.1", None, False),
        ("::1", None, False),
        ("0.0.0.0", None, True),
        ("sensors.example", None, True),
        ("127.0.0.1", "keys", True),
        ("0.0.0.0", "off", False),
    ],
)
def test_keys_are_required_beyond_this_machine(host: str, auth: Any, required: bool) -> None:
    assert Settings(host=host, auth=auth).requires_keys is required


def test_every_setting_is_described() -> None:
    rows = list(Settings.table())
    assert [row.name for row in rows] == list(Settings.model_fields)
    for row in rows:
        assert row.description.endswith("."), row.name
        assert Settings.from_environment({row.variable: row.default}) == Settings(), row.name


@pytest.mark.parametrize("memory", ["2 GiB", "5 GiB", "40 GiB"])
def test_limits_follow_from_the_memory(memory: str) -> None:
    given = Settings(memory=memory, max_post_rows=123_456, workers=2)
    assert given.memory is not None
    assert 0.999 * given.memory < bound_bytes(given) <= given.memory
    assert given.max_post_rows == 123_456
    default = Settings()
    shares = [
        getattr(given, name) / getattr(default, name)
        for name in FOLLOWING
        if name != "max_post_rows"
    ]
    assert max(shares) == pytest.approx(min(shares), rel=1e-4)
    assert Settings.from_environment(given.to_environment()) == given


def test_memory_that_the_other_limits_exceed_is_rejected_with_the_least() -> None:
    with pytest.raises(SettingsError) as raised:
        Settings.from_environment({"DECAYSKETCH_MEMORY": "1 GiB"})
    assert raised.value.name == "DECAYSKETCH_MEMORY"
    (least,) = re.findall(r"at least (\d+) MiB", raised.value.fault)
    assert bound_bytes(Settings(memory=f"{least} MiB")) <= int(least) * MIB
