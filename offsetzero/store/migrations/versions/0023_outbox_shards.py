"""The outbox: an order of its own, shards, rows that cannot be published, and defaults for plain SQL."""

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

# The table is written anew. What is published would be deleted within the hour, and is not written again.
UPGRADE = """
DELETE FROM outbox WHERE published_at IS NOT NULL;
CREATE FUNCTION offsetzero_uuid7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) PLACING substring(int8send((extract(
        epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$$;
ALTER TABLE outbox
    ADD COLUMN number bigint,
    ADD COLUMN shard smallint GENERATED ALWAYS AS
        ((hashtextextended(coalesce(aggregateid, id::text), 0::bigint) & 31::bigint)::smallint) STORED,
    ADD COLUMN attempts integer NOT NULL DEFAULT 0,
    ADD COLUMN error text,
    ADD COLUMN parked_at timestamptz,
    ALTER COLUMN topic DROP NOT NULL,
    ALTER COLUMN id SET DEFAULT offsetzero_uuid7();
UPDATE outbox SET number = numbered.number
    FROM (SELECT id, row_number() OVER (ORDER BY id) AS number FROM outbox) AS numbered WHERE outbox.id = numbered.id;
ALTER TABLE outbox ALTER COLUMN number SET NOT NULL;
ALTER TABLE outbox ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY;
SELECT setval(pg_get_serial_sequence('outbox', 'number'), coalesce(max(number), 0) + 1, false) FROM outbox;
DROP INDEX ix_outbox_unpublished;
CREATE INDEX ix_outbox_waiting ON outbox (shard, number) WHERE published_at IS NULL AND parked_at IS NULL;
CREATE INDEX ix_outbox_troubled ON outbox (aggregateid) WHERE error IS NOT NULL AND published_at IS NULL;
"""

DOWNGRADE = """
DELETE FROM outbox WHERE published_at IS NOT NULL;
DROP INDEX ix_outbox_troubled;
DROP INDEX ix_outbox_waiting;
ALTER TABLE outbox
    DROP COLUMN number,
    DROP COLUMN shard,
    DROP COLUMN attempts,
    DROP COLUMN error,
    DROP COLUMN parked_at,
    ALTER COLUMN topic SET NOT NULL,
    ALTER COLUMN id DROP DEFAULT;
CREATE INDEX ix_outbox_unpublished ON outbox (id) WHERE published_at IS NULL;
DROP FUNCTION offsetzero_uuid7();
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
