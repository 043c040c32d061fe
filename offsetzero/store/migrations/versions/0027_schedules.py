"""Schedules, what they have done, who has asked for it, and the reports that they make.

The index of a tenant's documents in their order is made by `offsetzero.store.migrate.INDEXES`: that table is large.
"""

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE schedules (
    id uuid NOT NULL CONSTRAINT pk_schedules PRIMARY KEY,
    tenant_id text,
    name text NOT NULL,
    kind text NOT NULL CONSTRAINT ck_schedules_kind CHECK (kind IN ('reindex', 'report', 'event')),
    cron text NOT NULL,
    zone text NOT NULL,
    catch_up text NOT NULL CONSTRAINT ck_schedules_catch_up CHECK (catch_up IN ('once', 'skip', 'all')),
    event_type text,
    event_key text,
    payload jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    paused_at timestamptz,
    done_until timestamptz NOT NULL,
    next_at timestamptz,
    error text,
    CONSTRAINT ck_schedules_event CHECK ((kind = 'event') = (payload IS NOT NULL AND event_type IS NOT NULL))
);
CREATE INDEX ix_schedules_next_at ON schedules (next_at) WHERE paused_at IS NULL;
CREATE UNIQUE INDEX ux_schedules_tenant_id_name ON schedules (tenant_id, name) NULLS NOT DISTINCT;
CREATE TABLE schedule_fires (
    id uuid NOT NULL CONSTRAINT pk_schedule_fires PRIMARY KEY,
    schedule_id uuid NOT NULL
        CONSTRAINT fk_schedule_fires_schedule_id REFERENCES schedules (id) ON DELETE CASCADE,
    fire_at timestamptz NOT NULL,
    by_hand text,
    missed_since timestamptz,
    fired_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    documents bigint,
    last_document uuid
);
CREATE UNIQUE INDEX ux_schedule_fires_schedule_id_fire_at ON schedule_fires (schedule_id, fire_at);
CREATE INDEX ix_schedule_fires_under_way ON schedule_fires (fire_at) WHERE ended_at IS NULL;
CREATE TABLE schedule_actions (
    id uuid NOT NULL CONSTRAINT pk_schedule_actions PRIMARY KEY,
    schedule_id uuid NOT NULL,
    tenant_id text,
    name text NOT NULL,
    action text NOT NULL
        CONSTRAINT ck_schedule_actions_action CHECK (action IN ('added', 'paused', 'resumed', 'run', 'removed')),
    who text NOT NULL,
    at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ix_schedule_actions_schedule_id ON schedule_actions (schedule_id, id);
CREATE TABLE reports (
    tenant_id text NOT NULL,
    id uuid NOT NULL,
    since timestamptz NOT NULL,
    until timestamptz NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    documents bigint NOT NULL,
    size_bytes bigint NOT NULL,
    queued bigint NOT NULL,
    running bigint NOT NULL,
    succeeded bigint NOT NULL,
    failed bigint NOT NULL,
    cancelled bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    CONSTRAINT pk_reports PRIMARY KEY (tenant_id, id)
);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("DROP INDEX IF EXISTS ix_documents_tenant_id_id")
    op.execute("DROP TABLE reports, schedule_actions, schedule_fires, schedules")
