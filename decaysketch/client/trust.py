"""Trust in the server's certificate: a private authority, and why a check failed.

Retries cannot mend a bad certificate, so clients report it at once (RFC 5280, section 6).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from decaysketch.errors import ParameterError

if TYPE_CHECKING:
    import ssl

__all__ = ["certificate_fault", "trust"]

# Codes of OpenSSL (x509_vfy.h), and the remedy.
_UNKNOWN_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})
_NOT_YET_VALID, _EXPIRED, _OTHER_NAME, _OTHER_ADDRESS = 9, 10, 62, 64


def trust(ca_file: str | os.PathLike[str] | None, where: str) -> ssl.SSLContext | bool:
    """Return the ``verify`` argument for an httpx2 client.

    Args:
        ca_file: PEM file with the certificates of the only authorities to trust. None: the system's
            authorities, or the file in the variable ``SSL_CERT_FILE``.
        where: the option's name, for the error message.

    Raises:
        ParameterError: the file cannot be read, or contains no certificate.
    """
    if ca_file is None:
        return True
    import ssl  # a client without TLS does not pay for it

    try:
        return ssl.create_default_context(cafile=os.fspath(ca_file))
    except OSError as fault:  # SSLError is one
        reason = fault.strerror if fault.filename or not isinstance(fault, ssl.SSLError) else ""
        raise ParameterError(
            f"{where} is {os.fspath(ca_file)!r}; expected a PEM file with a certificate"
            f" ({reason or 'it contains none'})"
        ) from None


def certificate_fault(fault: BaseException) -> str | None:
    """Return the reason and a remedy if a request failed at the server's certificate.

    None: it failed for another reason.
    """
    import ssl

    seen: BaseException | None = fault
    while seen is not None and not isinstance(seen, ssl.SSLCertVerificationError):
        seen = seen.__cause__ or seen.__context__
    if seen is None:
        return None
    return f"the server's certificate is not valid: {seen.verify_message}{_remedy(seen)}"


def _remedy(fault: ssl.SSLCertVerificationError) -> str:
    code = fault.verify_code
    if code in _UNKNOWN_AUTHORITY:
        return (
            ". If the authority is private, name its PEM file: ca_file (--ca-file, or the "
            "environment variable SSL_CERT_FILE)"
        )
    if code == _NOT_YET_VALID:
        return ". Check the clock of this machine"
    if code == _EXPIRED:
        return ". Renew it on the server, or check the clock of this machine"
    if code in (_OTHER_NAME, _OTHER_ADDRESS):
        return ". Use a URL with a name from the certificate"
    return ""
