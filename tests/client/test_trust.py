"""``ca_file``: every client trusts a private authority, and reports a bad certificate at once."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

import decaysketch as ds
from api.relay.upstream import Upstream
from api.settings import Settings
from decaysketch.cli import app
from decaysketch.client import AsyncSensor, ClientError, Sensor
from decaysketch.client.admin import Admin
from decaysketch.client.delivery import Paused, Taken
from decaysketch.client.trust import trust
from decaysketch.errors import ParameterError
from decaysketch.families import recipe_of
from decaysketch.ingest.bridge.checking import checks
from decaysketch.ingest.bridge.config import Config
from decaysketch.spark._aggregator import Address

_RECIPE = recipe_of(ds.SketchParams(time_unit="s")).to_dict()
_STATE = json.dumps(
    {"name": "s", "monitors": [], "sources": [], "secret_ids": False, "warnings": []} | _RECIPE
)


class Tls(NamedTuple):
    """A server whose certificate has a private authority."""

    ca_file: Path
    url: str
    other_name: str  # of a server with a certificate for another name
    expired: str
    accepted: list[str]  # the client of each connection


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def _authority(folder: Path) -> None:
    _openssl(
        folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
        "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=a private authority",
    )  # fmt: skip


def _certificate(folder: Path, name: str, alternative: str, days: str = "2") -> Path:
    (folder / "more").write_text(f"subjectAltName={alternative}\n")
    _openssl(
        folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
        "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", "/CN=server",
    )  # fmt: skip
    _openssl(
        folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
        "-days", days, "-extfile", "more", "-out", f"{name}.crt",
    )  # fmt: skip
    return folder / f"{name}.crt"


class _State(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = _STATE.encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Print nothing."""


def _served(certificate: Path, accepted: list[str]) -> http.server.ThreadingHTTPServer:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))

    class Server(http.server.ThreadingHTTPServer):
        def process_request(self, request: Any, client_address: Any) -> None:
            accepted.append(str(client_address))  # before the handshake, so before the client fails
            super().process_request(request, client_address)

        def finish_request(self, request: Any, client_address: Any) -> None:
            with (
                contextlib.suppress(OSError),
                context.wrap_socket(request, server_side=True) as secured,
            ):
                super().finish_request(secured, client_address)

    server = Server(("127.0.0.1", 0), _State)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificates, is not installed")
    folder = tmp_path_factory.mktemp("authority")
    _authority(folder)
    accepted: list[str] = []
    servers = [
        _served(_certificate(folder, "sound", "IP:127.0.0.1"), accepted),
        _served(_certificate(folder, "other", "DNS:other.example"), accepted),
        _served(_certificate(folder, "old", "IP:127.0.0.1", days="-1"), accepted),
    ]
    urls = [f"https://127.0.0.1:{each.server_address[1]}" for each in servers]
    yield Tls(folder / "ca.pem", *urls, accepted)
    for each in servers:
        each.shutdown()
        each.server_close()


def _sensor(url: str, ca_file: Path | None, folder: Path) -> str:
    with Sensor(url, "s", "a", spool=folder / "spool", ca_file=ca_file, timeout_s=300) as sensor:
        return str(sensor.recipe.params.time_unit)


def _async_sensor(url: str, ca_file: Path | None, folder: Path) -> str:
    async def start() -> str:
        spool = folder / "spool"
        async with AsyncSensor(
            url, "s", "a", spool=spool, ca_file=ca_file, timeout_s=300
        ) as sensor:
            return str(sensor.recipe.params.time_unit)

    return asyncio.run(start())


def _never(seconds: float) -> None:
    raise AssertionError(f"it waits {seconds} s for another attempt")


def _admin(url: str, ca_file: Path | None, folder: Path) -> str:
    with Admin(url, ca_file=ca_file, wait=_never) as admin:
        admin.list_monitors("s")
    return "s"


def _events(url: str, ca_file: Path | None, folder: Path) -> str:
    with Admin(url, ca_file=ca_file, wait=_never) as admin:
        try:
            next(admin.watch("s"))
        except AssertionError:  # the server has no events, so that the client waits
            return "s"
    return ""


def _command(*arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments])
    if done.exit_code:
        raise ClientError(done.output)
    return "s"


def _build(url: str, ca_file: Path | None, folder: Path) -> str:
    (folder / "a.csv").write_text("d,t,v\na,1700000000,1\n")
    given = [] if ca_file is None else ["--ca-file", str(ca_file)]
    return _command(
        "build", str(folder / "a.csv"), "--out", str(folder / "out"), "--id-columns", "d",
        "--time-column", "t", "--value-column", "v", "--from-server", url, "s", *given,
    )  # fmt: skip


def _monitors(url: str, ca_file: Path | None, folder: Path) -> str:
    given = [] if ca_file is None else ["--ca-file", str(ca_file)]
    return _command("monitor", "list", url, "s", "--json", *given)


def _spark(url: str, ca_file: Path | None, folder: Path) -> str:
    options = {"url": url, "stream": "s"} | ({} if ca_file is None else {"caFile": str(ca_file)})
    with Address.of_options(options).connected() as poster:
        return str(poster.recipe().params.time_unit)


def _bridge(url: str, ca_file: Path | None, folder: Path) -> str:
    server = {"url": url, "source": "b"} | ({} if ca_file is None else {"ca_file": ca_file})
    config = Config.model_validate(
        {
            "server": server,
            "map": [{"stream": "s", "format": "chirpstack", "value": "object.v"}],
            "spool": folder / "spool",
        }
    )
    found = dict(checks(config))["stream s"]
    if found is not None:
        raise ClientError(found)
    return "s"


def _relay(url: str, ca_file: Path | None, folder: Path) -> str:
    settings = Settings(
        upstream=url, upstream_source="a", upstream_ca_file="" if ca_file is None else str(ca_file)
    )

    async def look() -> Any:
        upstream = Upstream(settings)
        try:
            return await upstream.look("s")
        finally:
            await upstream.close()

    outcome = asyncio.run(look())
    if isinstance(outcome, Paused):
        raise ClientError(outcome.reason)
    assert isinstance(outcome, Taken)
    return "s"


CLIENTS: list[Callable[[str, Path | None, Path], str]] = [
    _sensor, _async_sensor, _admin, _events, _build, _monitors, _spark, _bridge, _relay,
]  # fmt: skip


@pytest.mark.parametrize("client", CLIENTS, ids=lambda each: each.__name__.strip("_"))
def test_every_client_trusts_the_authority_that_it_is_given(
    client: Callable[[str, Path | None, Path], str], tls: Tls, tmp_path: Path
) -> None:
    assert client(tls.url, tls.ca_file, tmp_path) == "s"


@pytest.mark.parametrize("client", CLIENTS, ids=lambda each: each.__name__.strip("_"))
@pytest.mark.parametrize(
    ("server", "trusting", "remedy"),
    [
        ("url", False, "ca_file"),
        ("expired", True, "Renew"),
        ("other_name", True, "a name from the certificate"),
    ],
)
def test_a_bad_certificate_is_reported_at_the_first_attempt(
    client: Callable[[str, Path | None, Path], str],
    server: str,
    trusting: bool,
    remedy: str,
    tls: Tls,
    tmp_path: Path,
) -> None:
    tls.accepted.clear()
    with pytest.raises(ClientError) as caught:
        client(getattr(tls, server), tls.ca_file if trusting else None, tmp_path)
    text = " ".join(str(caught.value).replace("│", " ").split())
    assert "certificate" in text
    assert remedy in text
    assert len(tls.accepted) == 1  # no second attempt


def test_a_sensor_with_a_known_stream_pauses_and_keeps_its_readings(
    tls: Tls, tmp_path: Path
) -> None:
    spool = tmp_path / "spool"
    events: list[str] = []
    with Sensor(tls.url, "s", "a", spool=spool, ca_file=tls.ca_file):
        pass
    with Sensor(
        tls.url, "s", "a", spool=spool, timeout_s=300, on_event=lambda e: events.append(e.kind)
    ) as sensor:
        sensor.update([1.0], 1, [1_700_000_000], [7], durable=True)
        status = sensor.flush()  # returns at once: delivery is paused
        assert "ca_file" in (status.paused or "")
        assert not status.done
        assert status.pending_bytes > 0
    assert "paused" in events  # which the sending thread reports, and it has ended


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_a_file_without_a_certificate_is_rejected(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ParameterError, match=r"ca_file is '.*ca.pem'; expected a PEM file"):
        trust(file, "ca_file")
