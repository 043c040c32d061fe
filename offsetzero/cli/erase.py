"""`offsetzero erase`: documents for good; shown first, done with --yes, and written down."""

import sys
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from offsetzero.cli.dlq_desk import Who, Why

if TYPE_CHECKING:
    from offsetzero.settings import Settings
    from offsetzero.store.database import Connection

EXIT_UNFINISHED = 4
"""Interrupted: the same command does the rest."""


def erase(
    document: Annotated[
        UUID | None, typer.Option("--document", metavar="ID", help="This document, also when it was deleted before.")
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="All documents of this tenant.")] = None,
    why: Why = "",
    who: Who = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this it is only shown.")] = False,
    audit: Annotated[bool, typer.Option("--audit", help="Only list what was erased: by whom, when, and why.")] = False,
) -> None:
    """Erase a document, or all documents of a tenant, for good: content, name, summary, index, texts of runs.

    Ids, sizes and SHA-256 stay. The log says `document.deleted`, so that every group removes what it has made of it,
    now and whenever it is rebuilt; the log itself has no names and no content (docs/erasing.md). Interrupted, the same
    command does the rest; twice does no harm.

    Example: offsetzero erase --tenant acme --why "request 4711 of a person" --yes
    """
    import psycopg

    from offsetzero import settings
    from offsetzero.errors import ConfigurationError

    if problems := _problems(document, tenant, why, yes, audit):
        raise ConfigurationError(problems)
    config = settings.load(needs=frozenset({"database"}))
    with psycopg.connect(config.database_url.get_secret_value(), autocommit=True, connect_timeout=10) as connection:
        if audit:
            _list(connection)
        else:
            _erase(config, connection, document, tenant, who, why, yes=yes)


def _problems(document: UUID | None, tenant: str | None, why: str, yes: bool, audit: bool) -> list[str]:
    problems = []
    if audit:
        if document is not None or tenant is not None or yes:
            problems.append("--audit: it only lists, and takes no other option")
        return problems
    if (document is None) == (tenant is None):
        problems.append("say what to erase: --document ID, or --tenant TENANT")
    if yes and not why.strip():
        problems.append("--why: say why; it is kept with who and when")
    return problems


def _erase(
    config: "Settings",
    connection: "Connection",
    document: UUID | None,
    tenant: str | None,
    who: str | None,
    why: str,
    *,
    yes: bool,
) -> None:
    import obstore.exceptions

    from offsetzero.api.erasing import Eraser
    from offsetzero.cli import bars, dlq_desk, preview
    from offsetzero.cli.signals import stopped_by_signals
    from offsetzero.errors import ConfigurationError
    from offsetzero.schemas.ids import uuid7
    from offsetzero.store import documents, erasure, generations, index, schedules
    from offsetzero.store.script import run

    eraser = Eraser(connection, config)
    if document is not None:
        owner = run(connection, documents.tenant_of(document))
        if owner is None:
            raise ConfigurationError(f"--document {document}: there is no such document in the database")
        total = 1
        print(f"Document {document} of tenant {owner}.", file=sys.stderr)
    else:
        assert tenant is not None  # noqa: S101 - one of them is given
        owner = tenant
        total, size = run(connection, documents.amount(owner))
        left = eraser.leftovers(owner, remove=False)
        print(
            f"{total:,} documents of tenant {owner}, {size:,} bytes; {left:,} objects that belong to no document.",
            file=sys.stderr,
        )
    if not yes:
        preview.nothing_was_changed()
        return
    erasure_id = UUID(str(uuid7()))
    run(connection, erasure.begin(erasure_id, owner, document, dlq_desk.operator(who), why, total))
    done, ended = 0, ""
    try:
        with bars.bar(f"erase {owner}", total) as tell, stopped_by_signals() as stop:
            for _ in (eraser.document(owner, document),) if document is not None else eraser.tenant(owner):
                done += 1
                tell(done)
                if stop.is_set() and document is None:
                    break
            else:
                if document is None:
                    eraser.leftovers(owner, remove=True)
                ended = erasure.DONE
    except (obstore.exceptions.BaseError, OSError) as error:
        raise ConfigurationError(
            f"OFFSETZERO_OBJECT_STORE_URL: the object store does not remove an object ({error}); {done:,} of {total:,}"
            " documents are erased, the same command does the rest"
        ) from error
    finally:
        run(connection, erasure.end(erasure_id, ended or f"interrupted after {done:,} of {total:,}"))
    print(f"{done:,} documents erased, and {eraser.results:,} answers of models that were kept of them.")
    if document is not None:
        for one in run(connection, erasure.held(document)):
            print(
                f"Group {one.group} holds this document's events behind a dead letter, its deletion too; end that:"
                f' offsetzero dlq discard {one.group} {one.partition}/{one.place} --why "erased"',
                file=sys.stderr,
            )
    else:
        for schedule in run(connection, schedules.every(owner)):
            print(
                f"Schedule {schedule.name} of tenant {owner} goes on; end it: offsetzero schedules remove"
                f" {schedule.name} --tenant {owner}",
                file=sys.stderr,
            )
    for group, other in run(connection, generations.behind(besides=index.GROUP)):
        option = f"--prune --as {other.name}" if other.name else "--prune" if other.read_at else "--abandon"
        print(
            f"Generation {other.number} of group {group} is kept and not read: it has what it made of this until it"
            f" follows the log again or is dropped: offsetzero rebuild {group} {option}",
            file=sys.stderr,
        )
    if not ended:
        print("Interrupted: the same command does the rest.", file=sys.stderr)
        raise typer.Exit(EXIT_UNFINISHED)


def _list(connection: "Connection") -> None:
    from offsetzero.cli import rows
    from offsetzero.store import erasure
    from offsetzero.store.script import run

    found = run(connection, erasure.history())
    if not found:
        print("Nothing was erased by an operator yet.")
        return
    columns = ("at", "tenant", "document", "documents", "who", "ended", "why")
    lines = [
        [
            one.at.isoformat(timespec="seconds"),
            one.tenant_id,
            str(one.document_id or "all"),
            str(one.documents),
            one.who,
            one.ended or "not yet",
            one.why,
        ]
        for one in found
    ]
    rows.show(columns, lines, first=6, right={"documents"})
