"""The audit of replays."""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE replays (
    id uuid NOT NULL,
    group_name text NOT NULL,
    way text NOT NULL,
    who text NOT NULL,
    why text NOT NULL,
    asked text NOT NULL,
    places text NOT NULL,
    records bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    ended text,
    CONSTRAINT pk_replays PRIMARY KEY (id),
    CONSTRAINT ck_replays_way CHECK (way IN ('offsets', 'live', 'job'))
);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.drop_table("replays")
