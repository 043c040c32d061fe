"""Generations with a name: what a projection was at a time, to be looked at and never read."""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

UPGRADE = """
ALTER TABLE group_generations ADD COLUMN name text, ADD COLUMN until timestamptz, ADD COLUMN filled_at timestamptz;
CREATE UNIQUE INDEX uq_group_generations_name ON group_generations (group_name, name) WHERE dropped_at IS NULL;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(
        "DROP INDEX uq_group_generations_name;"
        " ALTER TABLE group_generations DROP COLUMN name, DROP COLUMN until, DROP COLUMN filled_at"
    )
