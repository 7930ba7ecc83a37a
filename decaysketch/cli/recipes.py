"""The options of a program: the sketch configuration, decays, and secrets.

:mod:`decaysketch.cli.options` generates an option for each parameter of any family.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import httpx2
import typer

from decaysketch import decay as decays
from decaysketch.cli.options import Parameters, group
from decaysketch.cli.output import CommandError, warn
from decaysketch.client.access import bearer, plain_url
from decaysketch.client.trust import certificate_fault, trust
from decaysketch.core.column_types import ColumnTypes
from decaysketch.core.params import SketchParams
from decaysketch.core.sizing import CAPACITY_BY_KEY, read_accuracy
from decaysketch.core.text.grammar import json_object
from decaysketch.decay import Decay
from decaysketch.errors import DisagreeingCopiesWarning, TimeZoneWarning, UnlikelyClockWarning
from decaysketch.families import DEFAULT, FAMILIES, Recipe, recipe_from_dict

__all__ = [
    "Accuracy",
    "ApiKeyFile",
    "CaFile",
    "Configuration",
    "IdKeyFile",
    "TimeoutS",
    "api_client",
    "parse_decay",
    "read_id_key",
    "recipe_from_options",
    "recipe_from_server",
    "told",
]

Accuracy = Annotated[
    str | None,
    typer.Option(
        help="Error of a sum in 19 of 20 results, such as 2%, replaces --capacity. 2% if not "
        "given, and 5% for each of many keys."
    ),
]
IdKeyFile = Annotated[
    Path | None,
    typer.Option(help="File with the stream's secret id key, 16 to 64 bytes in hex."),
]
ApiKeyFile = Annotated[
    Path | None, typer.Option(help="File with the server's API key. The key is never an argument.")
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        envvar="DECAYSKETCH_CA_FILE",
        help="PEM file with the certificate authorities to trust instead of the system's, for a "
        "private authority.",
    ),
]
TimeoutS = Annotated[float, typer.Option(min=0.1, help="Time limit for one response, in seconds.")]

_OLD_DECAY = re.compile(r"\s*([a-z]+):([^(){}]*)")
_LONGEST_FILE = 1 << 20  # characters of a file of parameters


def _names(family: str) -> tuple[str, ...]:
    """Return the parameters of a family."""
    return tuple(option.name for option in FAMILIES[family].options)


_REMEDIES: dict[type[UserWarning], str] = {
    DisagreeingCopiesWarning: " (--id-columns takes several, with commas)",
    TimeZoneWarning: "; give the zone with --time-zone",
    UnlikelyClockWarning: "; they are accepted",
}


def told(warnings: Mapping[type[UserWarning], str]) -> list[str]:
    """Return the faults from :meth:`decaysketch.tables.KeyedBuilder.warnings`, with remedies."""
    return [said + _REMEDIES.get(category, "") for category, said in warnings.items()]


def read_id_key(path: Path | None) -> bytes | None:
    """Read the secret from a file. The key itself is never an argument, because other users could
    see it.
    """
    if path is None:
        return None
    try:
        return bytes.fromhex(path.read_text(encoding="ascii"))
    except ValueError:
        raise CommandError(f"{path} does not contain a key in hexadecimal digits") from None


@group
class Configuration(NamedTuple):
    """Options for the sketch configuration, next to the parameters of the families."""

    family: Annotated[
        str | None, typer.Option(help=f"{', '.join(FAMILIES)}; {DEFAULT} by default.")
    ] = None
    decay: Annotated[
        str | None,
        typer.Option(
            help="The decay, if the family fixes one, such as 'exponential(half_life=15min)', "
            "'floor(w / (1 + x/60))' or JSON, or a file that contains it."
        ),
    ] = None
    params: Annotated[
        Path | None, typer.Option(help="Parameters as JSON, instead of their options.")
    ] = None
    accuracy: Accuracy = None
    expected: Annotated[
        int | None,
        typer.Option(
            help="Distinct observations that you expect in the stream's life, such as 1000000, "
            "replaces --id-bits: ids then take the fewest bits for it. All sketches in a stream "
            "need the same number."
        ),
    ] = None
    id_key_file: IdKeyFile = None


def recipe_from_options(
    chosen: Configuration,
    given: Parameters,
    defaults: Mapping[str, Any],
    *,
    by_key: bool = False,
    columns: ColumnTypes = (),
) -> Recipe:
    """Return the sketch configuration of a family.

    Args:
        chosen: the family's name (None: the family in the file, or else the default family), a file
            of JSON with parameters or ``{"family", "params", "decay"}`` (None: they are in
            ``given``), an integral decay in any spelling (:mod:`decaysketch.decay.read`) or the
            path of a file that contains one, the accuracy, which gives the capacity for hashed ids,
            the expected volume, which gives their bits, and the file of the stream's secret.
        given: parameters of any family.
        defaults: defaults for parameters that were not given, in families that have them.
        by_key: whether there will be a sketch for each key; then they are smaller by default.
        columns: the declared columns, if there is no file.

    Raises:
        CommandError: a file without JSON, or an option that has no use.
        ParameterError: a value outside its domain, or a missing one.
    """
    family, params_file, accuracy = chosen.family, chosen.params, chosen.accuracy
    decay, id_key = chosen.decay, read_id_key(chosen.id_key_file)
    if family is not None and family not in FAMILIES:
        raise CommandError(f"--family is {family!r}; expected one of {', '.join(FAMILIES)}")
    if params_file is not None:
        for name, value in (("accuracy", accuracy), ("expected", chosen.expected)):
            if value is not None:
                raise CommandError(f"--{name} cannot be combined with --params")
        if given:
            raise CommandError(f"{_option(next(iter(given)))} cannot be combined with --params")
        form = json_object(str(params_file), params_file.read_text(encoding="utf-8"), _LONGEST_FILE)
        if "params" not in form:
            form = {"family": family or DEFAULT, "params": form}
        elif family not in (None, said := form.get("family", DEFAULT)):
            raise CommandError(f"--family is {family!r}; {params_file} is of family {said!r}")
    else:
        family = family or DEFAULT
        own = _names(family)
        for name in given:
            if name not in own:
                raise CommandError(f"{_option(name)} does not apply to the family {family}")
        params = {name: value for name, value in defaults.items() if name in own} | given
        params = _sized(params, given, chosen, family, by_key=by_key)
        if columns:
            if FAMILIES[family].params is not SketchParams:
                raise CommandError(f"--columns does not apply to the family {family}")
            params["columns"] = dict(columns)
            if "value_type" not in given:
                params.pop("value_type", None)
        if id_key is not None:
            params["keyed_by"] = "secret"
        form = {"family": family, "params": params}
    if decay is not None:
        if "decay" in form:
            raise CommandError(f"--decay does not apply: {params_file} has the decay")
        named = form.get("family", DEFAULT)
        if named not in [each.name for each in FAMILIES.values() if each.input.decay == "fixed"]:
            raise CommandError(f"--decay does not apply to the family {named}")
        form["decay"] = _decay_text(decay)
    return recipe_from_dict(form, id_key=id_key)


def _sized(
    params: Parameters, given: Parameters, chosen: Configuration, family: str, *, by_key: bool
) -> Parameters:
    """Return the parameters with the size that accuracy and expected volume give."""
    if FAMILIES[family].params is not SketchParams:
        for name, value in (("accuracy", chosen.accuracy), ("expected", chosen.expected)):
            if value is not None:
                raise CommandError(f"--{name} does not apply to the family {family}")
        return params
    params = params | _capacity(given, chosen.accuracy, by_key)
    if "accuracy" in params:
        params.pop("capacity", None)  # a default
    if chosen.expected is not None:
        if "id_bits" in given:
            raise CommandError("--expected cannot be combined with --id-bits")
        params.pop("id_bits", None)  # a default
        params["expected"] = chosen.expected
    return params


def _capacity(given: Parameters, accuracy: str | None, by_key: bool) -> Parameters:
    """Return the given or default size for a sketch with hashed ids."""
    if accuracy is not None:
        if "capacity" in given:
            raise CommandError("--accuracy cannot be combined with --capacity")
        return {"accuracy": read_accuracy(accuracy)}
    return {"capacity": CAPACITY_BY_KEY} if by_key and "capacity" not in given else {}


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _decay_text(given: str) -> str:
    """Return the text for ``--decay``: the spelling itself, or the content of the file with that
    name.
    """
    if os.path.isfile(given):  # noqa: PTH113 - Path raises where a text is too long for a name
        return Path(given).read_text(encoding="utf-8")
    if given.endswith(".json"):
        raise CommandError(f"--decay is {given!r}; expected a decay, or a file that contains one")
    return given


def api_client(
    url: str, key_file: Path | None, timeout_s: float, ca_file: Path | None = None
) -> httpx2.Client:
    """Return a client for an aggregator.

    Raises:
        OSError: the key file cannot be read.
        ParameterError: it contains no key, the address is invalid or contains a key, or
            ``ca_file`` contains no certificate.
    """
    plain_url(url, "the URL")
    headers = {}
    if key_file is not None:
        text = key_file.read_text(encoding="ascii", errors="replace")
        headers["authorization"] = bearer(text, str(key_file))
    return httpx2.Client(
        base_url=url, headers=headers, timeout=timeout_s, verify=trust(ca_file, "--ca-file")
    )


def recipe_from_server(client: httpx2.Client, stream: str, id_key: bytes | None) -> Recipe:
    """Return the sketch configuration of a stream in an aggregator."""
    try:
        answer = client.get(f"/v1/streams/{quote(stream, safe='')}")
        fields = answer.json()
    except (httpx2.HTTPError, ValueError) as fault:
        reason = certificate_fault(fault) or fault
        raise CommandError(f"{client.base_url} does not respond: {reason}") from None
    if answer.status_code != 200:
        raise CommandError(
            f"{client.base_url} responds with {answer.status_code}: {fields.get('detail')}"
        )
    form = {
        name: fields[name] for name in ("family", "params", "decay") if fields.get(name) is not None
    }
    return recipe_from_dict(form, id_key=id_key)


def parse_decay(text: str, time_unit: str) -> Decay:
    """See :func:`decaysketch.decay.parse`. ``exponential:half_life=3600`` is accepted for one
    release more, with a warning.

    Raises:
        ParameterError: no decay.
    """
    old = _OLD_DECAY.fullmatch(text)
    if old is None:
        return decays.parse(text, time_unit)
    spelled = f"{old[1]}({old[2]})"
    decay = decays.parse(spelled, time_unit)
    warn(f"--decay {text!r} is an old form that a later release will reject. Write {spelled!r}")
    return decay
