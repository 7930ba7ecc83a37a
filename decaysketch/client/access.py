"""API keys in headers, and URLs without secrets.

No message contains a key, or a URL that may contain one.
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
    """Return the value of the ``authorization`` header for an API key, without spaces around the
    key.

    Args:
        text: the key.
        where: where the key came from, for the error message.

    Raises:
        ParameterError: the key is not one word with visible ASCII characters.
    """
    key = text.strip()
    if not _KEY.fullmatch(key):
        raise ParameterError(
            f"{where} contains no API key; expected one line of visible ASCII characters"
        )
    return f"Bearer {key}"


def plain_url(url: str, where: str) -> str:
    """Return the aggregator's URL unchanged.

    Raises:
        ParameterError: it contains a user name or password, or is not http or https.
    """
    try:
        parts = urlsplit(url)
        if "@" in parts.netloc:
            raise ParameterError(
                f"{where} has a user name or password in it; give the API key in a file or a "
                "variable"
            )
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ParameterError:
        raise
    except ValueError:  # brackets or a port that are none
        sound = False
    if not sound:
        raise ParameterError(f"{where} is not an address such as http://localhost:8000")
    return url


def is_secret(name: str) -> bool:
    """Return whether an option with this name is a secret. An option with the secret's location is
    not.
    """
    return re.sub(r"[-_. ]", "", name.lower()) in _SECRETS


def has_secret(uri: str) -> bool:
    """Return whether a URI contains a password, or a query field that is a secret.

    A user name alone is no secret: file systems use it for containers and users.
    """
    try:
        parts = urlsplit(uri)
    except ValueError:
        return False
    return parts.password is not None or any(is_secret(name) for name, _ in parse_qsl(parts.query))
