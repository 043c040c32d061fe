"""A consumer group of one's own, in one file: a list of who uploaded what.

Run it beside `offsetzero up`, from this folder:  offsetzero groups run audit:audit
It starts from offset zero: whatever the log still holds is read, then it follows.
"""

from psycopg import Connection

from offsetzero import ConsumerGroup, Context, DocumentUploaded

audit = ConsumerGroup("audit")


@audit.setup
def tables(connection: Connection) -> None:
    """Make what the handlers write to, before the first record."""
    connection.execute(
        "CREATE TABLE IF NOT EXISTS audit_lines (at timestamptz, tenant text, document_id uuid, size_bytes bigint)"
    )


@audit.handler(DocumentUploaded)
def note(event: DocumentUploaded, ctx: Context) -> None:
    """Add a line, in the transaction that marks the event as handled: it is there once, whatever comes twice."""
    ctx.connection.execute(
        "INSERT INTO audit_lines VALUES (%s, %s, %s, %s)",
        (event.uploaded_at, event.tenant_id, event.document_id, event.size_bytes),
    )
    ctx.log.info("noted", document_id=str(event.document_id))
