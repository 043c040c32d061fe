"""How Faust's client reaches the cluster: what the settings tell librdkafka, in aiokafka's words."""

import ssl
from collections.abc import Mapping
from typing import Any

import faust

from offsetzero.errors import ConfigurationError

_PREFIXES = ("security.", "ssl.", "sasl.", "enable.ssl.", "https.")
_KNOWN = frozenset(
    {
        "security.protocol",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
    }
)
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def credentials(options: Mapping[str, str]) -> Any:
    """Faust's credentials for `OFFSETZERO_KAFKA__OPTIONS`; None for a cluster without TLS and SASL.

    Raises:
        ConfigurationError: an option about security that Faust's client has no equal of.
    """
    odd = [name for name in options if name.startswith(_PREFIXES) and name not in _KNOWN]
    protocol = options.get("security.protocol", "plaintext").upper()
    mechanism = (options.get("sasl.mechanism") or options.get("sasl.mechanisms") or "GSSAPI").upper()
    problems = [f"{name}: the group usage reads with aiokafka, which has no such option" for name in odd]
    if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        problems.append(f"security.protocol: {protocol} is none")
    if protocol.startswith("SASL") and mechanism not in _MECHANISMS:
        problems.append(f"sasl.mechanism: the group usage knows {', '.join(_MECHANISMS)}, not {mechanism}")
    if problems:
        raise ConfigurationError([f"OFFSETZERO_KAFKA__OPTIONS: {problem}" for problem in problems])
    context = _context(options) if protocol.endswith("SSL") else None
    if protocol.startswith("SASL"):
        return faust.SASLCredentials(
            username=options.get("sasl.username"),
            password=options.get("sasl.password"),
            mechanism=mechanism,
            ssl_context=context,
        )
    return faust.SSLCredentials(context) if context is not None else None


def _context(options: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.get("ssl.ca.location"))
        certificate = options.get("ssl.certificate.location")
        if certificate is not None:
            context.load_cert_chain(certificate, options.get("ssl.key.location"), options.get("ssl.key.password"))
    except OSError as error:  # ssl.SSLError is one
        raise ConfigurationError(f"OFFSETZERO_KAFKA__OPTIONS: the certificates cannot be read: {error}") from error
    return context
