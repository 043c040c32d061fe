"""The audit of outbox rows that operators have discarded."""

from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE outbox_discards (
    id uuid NOT NULL,
    type text NOT NULL,
    aggregatetype text NOT NULL,
    aggregateid text,
    topic text,
    created_at timestamptz NOT NULL,
    who text NOT NULL,
    why text NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_outbox_discards PRIMARY KEY (id, at)
);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.drop_table("outbox_discards")
