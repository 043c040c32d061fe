"""The writer schemas of records: which they are, and what they say."""

from collections.abc import Iterable

from offsetzero.schemas import frozen
from offsetzero.schemas.compiled import MARKER
from offsetzero.settings import Settings
from offsetzero.topics.schema_log import SchemaLog

_END = len(MARKER) + 8


def fingerprint(value: bytes | None) -> str | None:
    """The fingerprint in an Avro single-object value; None for what is none."""
    return value[2:_END].hex() if value is not None and len(value) >= _END and value[:2] == MARKER else None


def frozen_texts() -> dict[str, str]:
    """The frozen contracts, by fingerprint."""
    found = frozen.of_package().values()
    return {one.schema.fingerprint: one.schema.text for versions in found for one in versions}


def texts(settings: Settings, fingerprints: Iterable[str]) -> dict[str, str]:
    """Those of the schemas that are known: contracts, and what the topic `schemas` has.

    Raises:
        SchemasUnavailable: one is no contract, and the topic cannot be read.
    """
    known, log = frozen_texts(), SchemaLog(settings)
    try:
        found = {one: known.get(one) or log.find(one) for one in sorted(set(fingerprints))}
    finally:
        log.close()
    return {one: text for one, text in found.items() if text is not None}
