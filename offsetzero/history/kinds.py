"""The forms that a file of records may have."""

from enum import StrEnum


class Kind(StrEnum):
    """The form of a file."""

    JSONL = "jsonl"
    AVRO = "avro"
    PARQUET = "parquet"
