"""Kept answers that show a run, and with it the name of its document: found when that is erased."""

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE idempotency_keys ADD COLUMN run_id uuid;"
        " CREATE INDEX ix_idempotency_keys_run_id ON idempotency_keys (run_id) WHERE run_id IS NOT NULL"
    )


def downgrade() -> None:
    op.execute("ALTER TABLE idempotency_keys DROP COLUMN run_id")
