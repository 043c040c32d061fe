"""What all processes know together of each provider that handlers call."""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE providers (
    name text NOT NULL,
    state jsonb,
    changed_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_providers PRIMARY KEY (name)
);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.drop_table("providers")
