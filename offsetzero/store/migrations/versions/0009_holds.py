"""The dead letters that hold up their keys."""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE holds (
    group_name text NOT NULL,
    generation integer NOT NULL,
    topic_id text NOT NULL,
    partition integer NOT NULL,
    origin bigint NOT NULL,
    key bytea NOT NULL,
    redrive_no integer NOT NULL,
    hop integer NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_holds PRIMARY KEY (group_name, generation, topic_id, partition, origin)
);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.drop_table("holds")
