"""Switching between generations of projections: what one withholds while another is read, and the audit of it.

The index of outcomes that are not `applied` is made by `offsetzero.store.migrate.INDEXES`: that table is large.
"""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

UPGRADE = """
ALTER TABLE processed_events ADD COLUMN silent boolean NOT NULL DEFAULT false;
ALTER TABLE group_generations ADD COLUMN read_at timestamptz, ADD COLUMN dropped_at timestamptz;
UPDATE group_generations g SET read_at = g.created_at FROM group_pointers p
    WHERE p.group_name = g.group_name AND p.generation = g.generation;
ALTER TABLE group_pointers ADD COLUMN frozen_until timestamptz;
CREATE TABLE withheld_effects (
    group_name text NOT NULL,
    generation integer NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    source text NOT NULL,
    event_id text NOT NULL,
    outcome text,
    run_id uuid,
    reason text,
    detail text,
    warning text,
    correlation_id text,
    causation_id text,
    outbox_id uuid,
    aggregatetype text,
    aggregateid text,
    type text,
    payload bytea,
    topic text,
    headers jsonb,
    CONSTRAINT pk_withheld_effects PRIMARY KEY (group_name, generation, number)
);
CREATE INDEX ix_withheld_effects_event ON withheld_effects (group_name, generation, source, event_id);
CREATE TABLE group_switches (
    id uuid CONSTRAINT pk_group_switches PRIMARY KEY,
    group_name text NOT NULL,
    from_generation integer NOT NULL,
    to_generation integer NOT NULL,
    who text NOT NULL,
    why text NOT NULL,
    accepted bigint NOT NULL,
    positions jsonb NOT NULL,
    at timestamptz NOT NULL DEFAULT now()
);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(
        "DROP TABLE group_switches, withheld_effects; ALTER TABLE group_pointers DROP COLUMN frozen_until;"
        " ALTER TABLE group_generations DROP COLUMN read_at, DROP COLUMN dropped_at;"
        " DROP INDEX IF EXISTS ix_processed_events_not_applied;"
        " ALTER TABLE processed_events DROP COLUMN silent"
    )
