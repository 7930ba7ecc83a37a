"""How requests are let in: an API key as a header, and addresses that show no secret.

Neither a key nor an address that may hold one is ever part of a message.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

from decaysketch.errors import ParameterError

__all__ = ["bearer", "has_secret", "is_secret", "plain_url"]

_KEY = re.compile(r"[\x21-\x7e]+")
_SECRETS = frozenset(
    {
        "accesskey", "accountkey", "apikey", "auth", "authorization", "bearer", "clientsecret",
        "credential", "credentials", "idkey", "key", "passwd", "password", "secret",
        "secretaccesskey", "secretkey", "sig", "token",
    }
)  # fmt: skip


def bearer(text: str, where: str) -> str:
    """The value of the header ``authorization`` for an API key, without spaces around it.

    Args:
        text: the key.
        where: what it was read from, for the message.

    Raises:
        ParameterError: it is not one word of visible ASCII characters.
    """
    key = text.strip()
    if not _KEY.fullmatch(key):
        raise ParameterError(
            f"{where} holds no API key; expected one line of visible ASCII characters"
        )
    return f"Bearer {key}"


def plain_url(url: str, where: str) -> str:
    """The address of an aggregator, as it was given.

    Raises:
        ParameterError: it has a user name or password in it, or is not of http or https.
    """
    try:
        parts = urlsplit(url)
        if "@" in parts.netloc:
            raise ParameterError(
                f"{where} has a user name or password in it; an API key is read from a file or a "
                "variable"
            )
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ParameterError:
        raise
    except ValueError:  # brackets or a port that are none
        sound = False
    if not sound:
        raise ParameterError(f"{where} is no address such as http://localhost:8000")
    return url


def is_secret(name: str) -> bool:
    """Whether an option of this name is a secret itself; one that says where it is is none."""
    return re.sub(r"[-_. ]", "", name.lower()) in _SECRETS


def has_secret(uri: str) -> bool:
    """Whether a URI has a password in it, or a field of its query that is a secret.

    A name alone is none: file systems write containers and users so.
    """
    try:
        parts = urlsplit(uri)
    except ValueError:
        return False
    return parts.password is not None or any(is_secret(name) for name, _ in parse_qsl(parts.query))
