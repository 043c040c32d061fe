"""Rows that tests put beside the code that writes them."""

from dataclasses import fields
from typing import Any

import psycopg

from offsetzero.store.documents import Document


def add_document(connection: psycopg.Connection[Any], document: Document) -> None:
    """A document without a run, as no upload leaves one."""
    names = [one.name for one in fields(document)]
    statement = f"INSERT INTO documents ({', '.join(names)}) VALUES ({', '.join(['%s'] * len(names))})"
    connection.execute(statement.encode(), [getattr(document, name) for name in names])
