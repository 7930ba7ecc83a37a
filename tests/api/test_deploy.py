"""What is shipped to run it: files that parse, name what exists, and agree with each other."""

from __future__ import annotations

import configparser
import json
import re
import runpy
import subprocess
import tomllib
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from api.__main__ import commands
from api.monitors.group_metrics import _metrics
from api.service.metrics import Metrics
from api.settings import ENV_PREFIX, Settings, settings_table

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def dockerfile() -> list[list[str]]:
    """Its instructions, as words, continued lines joined."""
    text = re.sub(r"(?m)^#.*\n", "", (DEPLOY / "Dockerfile").read_text())
    joined = text.replace("\\\n", " ")
    return [line.split() for line in joined.splitlines() if line.strip()]


def test_the_dashboard_is_what_its_program_writes() -> None:
    pytest.importorskip("grafana_foundation_sdk")
    folder = DEPLOY / "grafana"
    build = runpy.run_path(str(folder / "dashboard.py"))["build"]
    assert json.loads((folder / "answers.json").read_text(encoding="utf-8")) == build()


def test_what_the_image_copies_exists_and_is_sent_to_the_builder() -> None:
    ignore = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    sent = {line.removeprefix("!") for line in ignore if line.startswith("!")}
    copied = {
        source
        for words in dockerfile()
        if words[0] == "COPY" and not any(word.startswith("--from") for word in words)
        for source in [word for word in words[1:-1] if not word.startswith("--")]
    }
    assert copied == sent
    for source in copied:
        assert (ROOT / source).exists(), source


def test_the_image_does_not_run_as_root_and_is_checked() -> None:
    instructions = dockerfile()
    final = instructions[max(i for i, words in enumerate(instructions) if words[0] == "FROM") :]
    names = [words[0] for words in final]
    assert ["USER", "10001:10001"] in final
    assert "HEALTHCHECK" in names
    assert names.index("USER") < names.index("ENTRYPOINT")
    variables = re.findall(rf"{ENV_PREFIX}(\w+)=(\S+)", (DEPLOY / "Dockerfile").read_text())
    chosen = {name.lower(): value for name, value in variables}
    assert Settings(**chosen).requires_keys
    assert Settings(**chosen).data.startswith("/data/")


def test_the_entrypoint_is_sound() -> None:
    script = DEPLOY / "entrypoint.sh"
    assert script.stat().st_mode & 0o111 == 0o111
    subprocess.run(["sh", "-n", str(script)], check=True)
    assert script.read_text().rstrip().endswith('exec python -m api "$@"')


@pytest.fixture
def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return content


def test_the_services(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) == {"aggregator-1", "aggregator-2", "database", "proxy"}
    for service in services.values():
        assert set(service.get("depends_on", [])) <= set(services)
        assert set(service["networks"]) <= set(compose["networks"])
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (DEPLOY / source).is_file(), volume
    published = [name for name, service in services.items() if "ports" in service]
    assert published == ["proxy"]
    assert compose["networks"]["inside"]["internal"] is True


def test_the_proxy_alone_may_name_the_client(compose: dict[str, Any]) -> None:
    (config,) = compose["networks"]["inside"]["ipam"]["config"]
    proxy = compose["services"]["proxy"]["networks"]["inside"]["ipv4_address"]
    believed = compose["services"]["aggregator-1"]["environment"]["FORWARDED_ALLOW_IPS"]
    assert believed == proxy
    assert ip_address(proxy) in ip_network(config["subnet"])
    assert ip_address(proxy) not in ip_network(config["ip_range"])


def test_the_aggregators_are_closed_and_have_time_to_stop(compose: dict[str, Any]) -> None:
    aggregator = compose["services"]["aggregator-1"]
    assert aggregator == compose["services"]["aggregator-2"]
    assert aggregator["read_only"] is True
    assert aggregator["cap_drop"] == ["ALL"]
    assert (DEPLOY / aggregator["build"]["context"]).resolve() == ROOT
    assert (ROOT / aggregator["build"]["dockerfile"]).is_file()
    environment = {
        name: value.replace("${POSTGRES_PASSWORD:?set it}", "p")
        for name, value in aggregator["environment"].items()
    }
    settings = Settings.from_environment(environment)
    assert settings.requires_keys
    assert settings.database_url == "postgresql+psycopg://decaysketch:p@database/decaysketch"
    unknown = {
        name
        for name in environment
        if name.startswith(ENV_PREFIX)
        and name.removeprefix(ENV_PREFIX).lower() not in Settings.model_fields
    }
    assert unknown == set()
    assert float(aggregator["stop_grace_period"].removesuffix("s")) > 2 * settings.drain_s
    assert "aggregator-1:8000 aggregator-2:8000" in (DEPLOY / "Caddyfile").read_text()


def test_the_unit() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(DEPLOY / "decaysketch-aggregator.service")
    service = unit["Service"]
    settings = Settings.from_environment({}, config=str(DEPLOY / "aggregator.toml"))
    assert settings.requires_keys
    assert settings.data == f"/var/lib/{service['StateDirectory']}/aggregator.sqlite3"
    assert float(service["TimeoutStopSec"]) > 2 * settings.drain_s
    assert service["ExecStart"].endswith(
        "python -m api serve --config /etc/decaysketch/aggregator.toml"
    )
    for name in ("NoNewPrivileges", "PrivateTmp", "ProtectHome", "RestrictNamespaces"):
        assert service[name] == "yes"
    assert "MemoryDenyWriteExecute" not in service


def test_the_settings_of_the_service_are_written_out() -> None:
    with (DEPLOY / "aggregator.toml").open("rb") as file:
        assert tomllib.load(file).keys() <= Settings.model_fields.keys()


@pytest.mark.parametrize("name", ["site", "relay"])
def test_relays_of_the_example_have_all_but_name_and_key(name: str) -> None:
    config = str(DEPLOY / "relay" / f"{name}.toml")
    environment = {"DECAYSKETCH_UPSTREAM_SOURCE": "north", "DECAYSKETCH_UPSTREAM_KEY": "ds_a_b"}
    settings = Settings.from_environment(environment, config=config)
    assert settings.requires_keys
    assert settings.upstream.startswith("https://")


def metrics_named_in(text: str) -> set[str]:
    return set(re.findall(r"\bdecaysketch_[a-z_]+", text))


def test_alerts_are_on_metrics_that_there_are() -> None:
    counted = Metrics()
    families = {family.name: family.type for family in counted.registry.collect()}
    known = set(families)
    for name, kind in families.items():
        if kind == "counter":
            known.add(f"{name}_total")
        if kind == "histogram":
            known |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"][0]["rules"]
    rules += yaml.safe_load((DEPLOY / "answers-alerts.yaml").read_text())["groups"][0]["rules"]
    used = {name for rule in rules for name in metrics_named_in(rule["expr"])}
    answered = {name for name in used if name.startswith("decaysketch_answer")}
    assert len(answered) == 3  # which are those of a stream's scrape
    used -= answered
    known |= {family.name for family in _metrics([])}
    assert len(used) > 5
    assert used <= known
    assert metrics_named_in(OPERATIONS) <= known
    for rule in rules:
        assert rule["annotations"]["summary"]
    dashboard = json.loads((DEPLOY / "grafana" / "answers.json").read_text())
    (annotations,) = dashboard["annotations"]["list"]
    assert metrics_named_in(annotations["expr"]) == {"decaysketch_monitor_alert"} <= known


def test_the_table_of_settings_is_that_of_the_class() -> None:
    begin = "<!-- settings: written by `python -m api settings` -->\n"
    (table,) = re.findall(
        f"{re.escape(begin)}\n(.*)\n<!-- end of settings -->", OPERATIONS, flags=re.DOTALL
    )
    assert table == settings_table()


def test_the_commands_that_the_documentation_names() -> None:
    named = set(re.findall(r"python -m api ([a-z]+)", OPERATIONS))
    assert named == {
        "keys", "backup", "restore", "check", "revoke", "delete", "settings", "memory"
    }  # fmt: skip
    for name in sorted(named):
        asked = CliRunner().invoke(commands, [name, "--help"])
        assert asked.exit_code == 0, name


def test_files_that_the_documentation_names_exist() -> None:
    for path in re.findall(r"`((?:deploy|docs)/[\w./-]+)`", OPERATIONS):
        assert (ROOT / path).is_file(), path


def test_the_settings_command() -> None:
    assert CliRunner().invoke(commands, ["settings"]).output == settings_table()
