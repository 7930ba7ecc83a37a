"""The operator's settings: one frozen, typed object.

A value comes from the first source that has it: the command line, the environment variable
``DECAYSKETCH_<FIELD>``, the TOML file named by ``--config`` or ``DECAYSKETCH_CONFIG``, the default.
``Settings(...)`` itself reads neither the environment nor a file, so that a test or an embedding
program has exactly the values that it passes.

Every rejection names the setting as it was written, the value, and the expected domain.
"""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

from pydantic import Field, ValidationError
from pydantic.fields import FieldInfo
from sqlalchemy.engine import URL

from api.journal.urls import driver_url
from api.origins import Origin
from api.resources import FOLLOWING, MIB, TIB, Bytes, Limits, fitted, unset_as, within

__all__ = [
    "CONFIG_VARIABLE",
    "ENV_PREFIX",
    "Setting",
    "Settings",
    "SettingsError",
    "settings_table",
]

_LIMITS = (
    "Limits that you rarely change. If you set `memory`, those of rows and bytes marked * that you "
    "do not set follow from it:"
)
ENV_PREFIX = "DECAYSKETCH_"
CONFIG_VARIABLE = f"{ENV_PREFIX}CONFIG"

_LONGEST_LIST = 10_000  # characters
_LEAST_SECRET = 16
_WORD = re.compile(r"[\x21-\x7e]+")
# Words for None, and which settings have them.
_WORDS = {"auto": ("auth", "log_format", "memory"), "off": ("max_clock_skew_s",)}


class SettingsError(ValueError):
    """A setting is outside its domain. The message names it, its value and the expected domain."""

    def __init__(self, name: str, fault: str) -> None:
        super().__init__(f"{name} {fault}")
        self.name = name
        self.fault = fault


class Setting(NamedTuple):
    """One row in the documentation's table."""

    name: str
    variable: str
    default: str
    expected: str
    description: str


class Settings(Limits):
    """Settings for one aggregator, equal on all its workers."""

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address to listen on. Beyond loopback, requests need a key unless `auth` "
        "is `off`.",
    )
    port: int = within(8000, 0, 65535, "TCP port to listen on. `0` chooses a free port.")
    data: str = Field(
        default="aggregator.sqlite3",
        min_length=1,
        repr=False,
        description="Path of a SQLite file, created if absent, or a URL: `sqlite:///PATH` or "
        "`postgresql://USER:PASSWORD@HOST/DATABASE`. If the URL contains a "
        "password, set it in the environment and not on the command line.",
    )
    compact_rows: int = within(
        2000, 1, 1 << 30, "Journal rows since the last compaction that start the next one."
    )
    compact_bytes: Bytes = within(
        256 * MIB, 1, TIB, "Journal bytes since the last compaction that start the next one."
    )
    poll_ms: int = within(
        200,
        1,
        60_000,
        "Milliseconds between two reads of the journal for commits of other workers.",
    )

    webhook_origins: str = Field(
        default="",
        max_length=_LONGEST_LIST,
        description="Origins to which monitors may send alerts, separated by spaces, such as "
        "`https://ops.example http://alerts.internal:9095`. Empty: none.",
    )
    webhook_networks: str = Field(
        default="",
        max_length=_LONGEST_LIST,
        description="Networks with private addresses that `webhook_origins` may use, "
        "separated by spaces, such as `10.1.2.0/24`.",
    )
    webhook_secret: str = Field(
        default="",
        max_length=1000,
        repr=False,
        description="Secret that signs alerts (HMAC-SHA256), at least 16 characters if "
        "`webhook_origins` is set. Set it in the environment and not on the "
        "command line.",
    )
    webhook_give_up_s: float = within(
        86_400.0, 1, 1e9, "Seconds after which an alert that could not be delivered is dropped."
    )

    upstream: str = Field(
        default="",
        max_length=_LONGEST_LIST,
        description="Address of the aggregator to which this one forwards its rows, such as "
        "`https://hub.example`. Empty: this one is no relay.",
    )
    upstream_source: str = Field(
        default="",
        max_length=100,
        description="Name of this relay at the upstream, used as the source of its posts. No "
        "other source may have it. 1 to 100 printable ASCII characters without "
        "spaces.",
    )
    upstream_key: str = Field(
        default="",
        max_length=1000,
        repr=False,
        description="Key of the role `write` at the upstream. Set it in the environment and "
        "not on the command line.",
    )
    upstream_ca_file: str = Field(
        default="",
        max_length=1000,
        description="PEM file with the certificate authorities that the relay trusts. Empty: "
        "those of the system.",
    )
    upstream_streams: str = Field(
        default="*",
        min_length=1,
        max_length=_LONGEST_LIST,
        description="Streams that the relay forwards: names or globs, separated by spaces.",
    )
    upstream_paths: str = Field(
        default="",
        max_length=_LONGEST_LIST,
        description="Streams whose sources the relay also forwards one by one, to the "
        "upstream's stream `NAME.paths` as the sources `RELAY/SOURCE`: names or "
        "globs, separated by spaces.",
    )
    upstream_flush_s: float = within(
        10.0,
        0,
        86_400,
        "Maximum seconds that rows wait for more rows before the relay forwards them.",
    )
    upstream_timeout_s: float = within(
        30.0, 0.1, 3600, "Maximum seconds for one response of the upstream."
    )
    upstream_check_s: float = within(
        3600.0,
        1,
        1e9,
        "Seconds between two checks that the upstream holds the forwarded rows of each stream.",
    )

    max_clock_skew_s: Annotated[float | None, unset_as("off")] = within(
        300.0,
        0,
        1e9,
        "Maximum seconds by which the time of a row may be ahead of this machine's clock, in "
        "streams that do not set it. `off`: any time.",
    )

    auth: Annotated[Literal["keys", "off"] | None, unset_as("auto")] = Field(
        default=None,
        description="`keys`: each request needs a key. `off`: none does. `auto`: `off` on "
        "loopback, `keys` elsewhere.",
    )
    rate_per_s: float = within(
        0.0,
        0,
        1e9,
        "Requests a second that one key may send (without keys: one address). `0`: any rate.",
    )
    rate_burst: int = within(
        100, 1, 1 << 30, "Requests that may arrive at once before `rate_per_s` applies."
    )
    read_timeout_s: float = within(
        30.0,
        0.1,
        3600,
        "Maximum seconds for a request body to arrive. A slower request is rejected with 408.",
    )

    drain_s: float = within(
        20.0,
        0,
        3600,
        "Maximum seconds, after a signal to stop, for running requests to end, and then as "
        "many for the queue to be written.",
    )

    log_format: Annotated[Literal["json", "text"] | None, unset_as("auto")] = Field(
        default=None, description="`json`, `text`, or `auto`: text on a terminal, JSON elsewhere."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest severity of the lines that are written."
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _refusal(error) from None
        if self.memory is not None:
            try:
                super().__init__(**values | fitted(self))
            except ValueError as error:
                raise SettingsError("memory", f"is {values['memory']!r}; {error}") from None
        _url(self.data)
        _check_webhooks(self)
        _check_upstream(self)

    # --------------------------------------------------------------------------- derived limits

    @property
    def database_url(self) -> str:
        """Return ``data`` for SQLAlchemy's asyncio engine, with the password if there is one."""
        return _url(self.data).render_as_string(hide_password=False)

    @property
    def database_kind(self) -> str:
        """Return ``sqlite`` or ``postgresql``."""
        return _url(self.data).get_backend_name()

    @property
    def database_file(self) -> Path | None:
        """Return the database path, or None where it is no file."""
        url = _url(self.data)
        is_file = self.database_kind == "sqlite" and url.database not in (None, "", ":memory:")
        return Path(str(url.database)) if is_file else None

    @property
    def place(self) -> str:
        """Return ``data`` in a form that may be shown: without the password."""
        return _url(self.data).render_as_string() if "://" in self.data else self.data

    @property
    def listens_on_loopback(self) -> bool:
        """Return whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def is_relay(self) -> bool:
        """Return whether this aggregator forwards rows to another."""
        return bool(self.upstream)

    @property
    def requires_keys(self) -> bool:
        """Return the effective value of ``auth``."""
        if self.auth is None:
            return not self.listens_on_loopback
        return self.auth == "keys"

    # ------------------------------------------------------------------------ where they are from

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ, **options: Any) -> Self:
        """Return settings from the environment and the file that it names.

        Args:
            environment: replaces the process environment.
            **options: values from the command line. None: not given. ``config`` is the TOML file's
                path.

        Raises:
            SettingsError: a value is outside its domain, the file does not exist or is not TOML, or
                it has a key that is no setting.
        """
        chosen: dict[str, Any] = {}
        origins: dict[str, str] = {}
        path = options.pop("config", None) or environment.get(CONFIG_VARIABLE)
        if path:
            for name, value in _read(Path(path)).items():
                chosen[name], origins[name] = value, f"{name} in {path}"
        for name in cls.model_fields:
            variable = ENV_PREFIX + name.upper()
            if (text := environment.get(variable)) is not None:
                chosen[name], origins[name] = text, variable
        for name, value in options.items():
            if value is not None:
                chosen[name], origins[name] = value, name
        try:
            return cls(**chosen)
        except SettingsError as error:
            raise SettingsError(origins.get(error.name, error.name), error.fault) from None

    def to_environment(self) -> dict[str, str]:
        """Return variables that ``from_environment`` reads as these settings. Workers receive
        them this way.
        """
        return {
            ENV_PREFIX + name.upper(): _text(name, getattr(self, name))
            for name in type(self).model_fields
        }

    @classmethod
    def table(cls) -> Iterator[Setting]:
        """Return every setting, in order, for the documentation."""
        for name, field in cls.model_fields.items():
            yield Setting(
                name=name,
                variable=ENV_PREFIX + name.upper(),
                default=_text(name, field.default),
                expected=_expected(name),
                description=field.description or "",
            )


def settings_table() -> str:
    """Return every setting as a row of a Markdown table, and the limits as a second table."""
    limits = set(Limits.model_fields) - {"memory", "workers", "compute_threads"}
    chosen = [row for row in Settings.table() if row.name not in limits]
    others = [row for row in Settings.table() if row.name in limits]
    return f"{_rows(chosen)}\n{_LIMITS}\n\n{_rows(others)}"


def _rows(settings: list[Setting]) -> str:
    lines = ["| setting | default | expected | |", "| --- | --- | --- | --- |"]
    lines += [
        f"| `{row.name}`{' *' * (row.name in FOLLOWING)} | `{row.default}` | {row.expected} "
        f"| {row.description} |"
        for row in settings
    ]
    return "\n".join(lines) + "\n"


def _url(data: str) -> URL:
    if "://" not in data:
        return driver_url("sqlite://").set(database=data)
    try:
        return driver_url(data)
    except ValueError:
        scheme = data.partition("://")[0]
        raise SettingsError(
            "data",
            f"is a URL of {scheme!r} that cannot be read; expected a path, sqlite:///PATH or "
            "postgresql://USER:PASSWORD@HOST/DATABASE",
        ) from None


def _check_webhooks(settings: Settings) -> None:
    for each in settings.webhook_origins.split():
        try:
            origin = Origin.of(each)
        except ValueError as error:
            raise SettingsError("webhook_origins", f"has {each!r}, which {error}") from None
        if str(origin) != each:
            raise SettingsError("webhook_origins", f"has {each!r}; expected {str(origin)!r}")
    for each in settings.webhook_networks.split():
        try:
            ipaddress.ip_network(each)
        except ValueError as error:
            raise SettingsError(
                "webhook_networks", f"has {each!r}; expected such as 10.1.2.0/24: {error}"
            ) from None
    if settings.webhook_origins and len(settings.webhook_secret) < _LEAST_SECRET:
        raise SettingsError(
            "webhook_secret",
            f"has {len(settings.webhook_secret)} characters; expected {_LEAST_SECRET} or more, "
            "since webhook_origins has some",
        )


def _check_upstream(settings: Settings) -> None:
    if not settings.upstream:
        return
    try:
        Origin.of(settings.upstream)
    except ValueError as error:
        raise SettingsError("upstream", f"{error}; expected such as https://hub.example") from None
    if not _WORD.fullmatch(settings.upstream_source):
        raise SettingsError(
            "upstream_source",
            f"is {settings.upstream_source!r}; expected 1 to 100 printable characters of ASCII and "
            "no space, since upstream is given",
        )
    if settings.upstream_key and not _WORD.fullmatch(settings.upstream_key):
        raise SettingsError("upstream_key", "has a character that no key has")


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise SettingsError(
            "config", f"is {str(path)!r}; expected a readable file: {error.strerror}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError("config", f"is {str(path)!r}; expected TOML: {error}") from None


def _refusal(error: ValidationError) -> SettingsError:
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return SettingsError(
            name, f"is not a setting; expected one of {', '.join(Settings.model_fields)}"
        )
    return SettingsError(name, f"is {first['input']!r}; expected {_expected(name)}")


def _expected(name: str) -> str:
    """Return a setting's domain, in words."""
    field: FieldInfo = Settings.model_fields[name]
    words = [word for word, value in _WORDS.items() if name in value]
    if (literals := _literals(field.annotation)) is not None:
        return f"one of {', '.join([*literals, *words])}"
    low = next((each.ge for each in field.metadata if hasattr(each, "ge")), None)
    high = next((each.le for each in field.metadata if hasattr(each, "le")), None)
    if low is None or high is None:
        least = any(getattr(each, "min_length", 0) for each in field.metadata)
        return "a text that is not empty" if least else "a text"
    kind = "a number" if field.annotation in (float, float | None) else "an integer"
    domain = f"{kind} from {_shown(low)} to {_shown(high)}"
    if name == "memory" or name.endswith("_bytes"):
        domain += " (or such as 64 MiB)"
    return " or ".join([domain, *words])


def _literals(annotation: Any) -> list[str] | None:
    for each in (annotation, *get_args(annotation)):
        if getattr(each, "__origin__", None) is Literal:
            return [str(value) for value in get_args(each)]
    return None


def _shown(bound: Any) -> str:
    return f"{bound:g}" if isinstance(bound, float) else str(bound)


def _text(name: str, value: Any) -> str:
    if value is None:
        return next(word for word, names in _WORDS.items() if name in names)
    return str(value)
