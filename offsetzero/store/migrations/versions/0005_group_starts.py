"""Where each consumer group began in each partition, with the topic's id."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE group_starts (
    group_name text NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    topic_id text NOT NULL,
    start_offset bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    committed_at timestamptz,
    CONSTRAINT pk_group_starts PRIMARY KEY (group_name, topic, partition)
);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.drop_table("group_starts")
