"""Forced replays: parts of the log that a group handles again, in a generation of their own."""

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

UPGRADE = """
ALTER TABLE replays ADD COLUMN generation integer;
CREATE TABLE forced_spans (
    group_name text NOT NULL,
    generation integer NOT NULL,
    topic_id text NOT NULL,
    partition integer NOT NULL,
    first_offset bigint NOT NULL,
    end_offset bigint NOT NULL,
    key bytea,
    event_type text,
    CONSTRAINT pk_forced_spans PRIMARY KEY (group_name, generation, topic_id, partition),
    CONSTRAINT fk_forced_spans_generation FOREIGN KEY (group_name, generation)
        REFERENCES group_generations (group_name, generation)
);
ALTER TABLE webhook_deliveries ADD COLUMN generation integer NOT NULL DEFAULT 1,
    DROP CONSTRAINT pk_webhook_deliveries,
    ADD CONSTRAINT pk_webhook_deliveries PRIMARY KEY (webhook_id, message_id, generation);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    # What was done again is done once more then, where it is delivered once more: only the first outcomes are left.
    op.execute(
        "DELETE FROM webhook_deliveries WHERE generation > 1;"
        " ALTER TABLE webhook_deliveries DROP CONSTRAINT pk_webhook_deliveries, DROP COLUMN generation,"
        " ADD CONSTRAINT pk_webhook_deliveries PRIMARY KEY (webhook_id, message_id);"
        " DROP TABLE forced_spans; ALTER TABLE replays DROP COLUMN generation"
    )
