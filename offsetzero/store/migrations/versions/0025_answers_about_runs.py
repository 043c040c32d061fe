"""Kept answers that show a run, and with it the name of its document: found when that is erased.

The index for that is made by `offsetzero.store.migrate.INDEXES`: the table has the answers of a day.
"""

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE idempotency_keys ADD COLUMN run_id uuid")


def downgrade() -> None:
    op.execute("ALTER TABLE idempotency_keys DROP COLUMN run_id")
