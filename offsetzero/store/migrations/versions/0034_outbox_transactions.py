"""The transaction of each row of the outbox, by which a relay knows what has come since it looked."""

from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

# Rows of before are without: a relay that begins looks at all that waits. One that waits again is as good as written
# again, whoever says so and how.
UPGRADE = """
ALTER TABLE outbox ADD COLUMN xid xid8;
ALTER TABLE outbox ALTER COLUMN xid SET DEFAULT pg_current_xact_id();
CREATE FUNCTION offsetzero_outbox_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.xid := pg_current_xact_id();
    RETURN NEW;
END
$$;
CREATE TRIGGER outbox_again BEFORE UPDATE ON outbox FOR EACH ROW
    WHEN (NEW.published_at IS NULL AND NEW.parked_at IS NULL
        AND (OLD.published_at IS NOT NULL OR OLD.parked_at IS NOT NULL))
    EXECUTE FUNCTION offsetzero_outbox_again();
"""

DOWNGRADE = """
CREATE INDEX IF NOT EXISTS ix_outbox_waiting ON outbox (shard, number) WHERE published_at IS NULL AND parked_at IS NULL;
DROP TRIGGER outbox_again ON outbox;
DROP FUNCTION offsetzero_outbox_again();
ALTER TABLE outbox DROP COLUMN xid;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
