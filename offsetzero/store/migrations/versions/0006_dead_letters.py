"""The ledger of dead letters, and what operators did about them."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE dead_letters (
    topic_id text NOT NULL,
    partition integer NOT NULL,
    place bigint NOT NULL,
    group_name text NOT NULL,
    failed_at timestamptz NOT NULL,
    source text NOT NULL,
    event_id text NOT NULL,
    redrive_no integer NOT NULL,
    event_type text,
    tenant_id text,
    run_id uuid,
    key text,
    failure text NOT NULL,
    reason text NOT NULL,
    detail text NOT NULL,
    fingerprint text NOT NULL,
    attempt integer NOT NULL,
    origin_topic_id text NOT NULL,
    origin_topic text NOT NULL,
    origin_partition integer NOT NULL,
    origin_offset bigint NOT NULL,
    CONSTRAINT pk_dead_letters PRIMARY KEY (topic_id, partition, place)
);
CREATE INDEX ix_dead_letters_failed_at ON dead_letters (failed_at);
CREATE INDEX ix_dead_letters_group_name_event_id ON dead_letters (group_name, event_id);

CREATE TABLE dead_letter_positions (
    topic_id text NOT NULL,
    partition integer NOT NULL,
    topic text NOT NULL,
    position bigint NOT NULL,
    CONSTRAINT pk_dead_letter_positions PRIMARY KEY (topic_id, partition)
);

CREATE TABLE dead_letter_actions (
    id uuid NOT NULL,
    kind text NOT NULL,
    group_name text NOT NULL,
    who text NOT NULL,
    why text NOT NULL,
    chosen text NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    ended text,
    CONSTRAINT pk_dead_letter_actions PRIMARY KEY (id),
    CONSTRAINT ck_dead_letter_actions_kind CHECK (kind IN ('redrive', 'discard', 'edit'))
);

CREATE TABLE dead_letter_decisions (
    topic_id text NOT NULL,
    partition integer NOT NULL,
    place bigint NOT NULL,
    action_id uuid NOT NULL,
    number integer NOT NULL,
    done_at timestamptz,
    CONSTRAINT pk_dead_letter_decisions PRIMARY KEY (topic_id, partition, place),
    CONSTRAINT fk_dead_letter_decisions_action_id FOREIGN KEY (action_id) REFERENCES dead_letter_actions (id)
);
CREATE INDEX ix_dead_letter_decisions_action_id_number ON dead_letter_decisions (action_id, number);

CREATE TABLE dead_letter_edits (
    action_id uuid NOT NULL,
    topic_id text NOT NULL,
    partition integer NOT NULL,
    place bigint NOT NULL,
    original bytea,
    edited bytea NOT NULL,
    CONSTRAINT pk_dead_letter_edits PRIMARY KEY (action_id),
    CONSTRAINT fk_dead_letter_edits_action_id FOREIGN KEY (action_id) REFERENCES dead_letter_actions (id)
);
CREATE INDEX ix_dead_letter_edits_topic_id_partition_place ON dead_letter_edits (topic_id, partition, place);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    for table in ("edits", "decisions", "actions", "positions"):
        op.drop_table(f"dead_letter_{table}")
    op.drop_table("dead_letters")
