"""The transaction of each row of the outbox, by which a relay knows what has come since it looked."""

from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

# Rows of before are without: a relay that begins looks at all that waits. A row that waits again, or in another shard,
# is as good as written again, whoever says so and how; and nobody else's id is taken: a restore's, or a replica's.
UPGRADE = """
ALTER TABLE outbox ADD COLUMN xid xid8;
ALTER TABLE outbox ALTER COLUMN xid SET DEFAULT pg_current_xact_id();
CREATE FUNCTION offsetzero_outbox_xid() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.xid := pg_current_xact_id();
    RETURN NEW;
END
$$;
CREATE TRIGGER outbox_written BEFORE INSERT ON outbox FOR EACH ROW
    WHEN (NEW.xid IS DISTINCT FROM pg_current_xact_id())
    EXECUTE FUNCTION offsetzero_outbox_xid();
CREATE TRIGGER outbox_again BEFORE UPDATE ON outbox FOR EACH ROW
    WHEN (NEW.published_at IS NULL AND NEW.parked_at IS NULL
        AND (OLD.published_at IS NOT NULL OR OLD.parked_at IS NOT NULL
            OR NEW.aggregateid IS DISTINCT FROM OLD.aggregateid OR NEW.id <> OLD.id OR NEW.number <> OLD.number))
    EXECUTE FUNCTION offsetzero_outbox_xid();
ALTER TABLE outbox ENABLE ALWAYS TRIGGER outbox_written;
ALTER TABLE outbox ENABLE ALWAYS TRIGGER outbox_again;
"""

DOWNGRADE = """
DROP INDEX IF EXISTS ix_outbox_waiting, ix_outbox_waiting_by_shard;
CREATE INDEX ix_outbox_waiting ON outbox (shard, number) WHERE published_at IS NULL AND parked_at IS NULL;
DROP TRIGGER outbox_again ON outbox;
DROP TRIGGER outbox_written ON outbox;
DROP FUNCTION offsetzero_outbox_xid();
ALTER TABLE outbox DROP COLUMN xid;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
