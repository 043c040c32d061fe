"""The check of the lanes of runs, of those from before it, too. Who works with runs goes on meanwhile."""

from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE runs VALIDATE CONSTRAINT ck_runs_lane")


def downgrade() -> None:
    pass  # what is valid may be so in an older version, too
