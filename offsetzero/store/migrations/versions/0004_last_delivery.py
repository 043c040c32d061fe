"""An index that finds the last delivery of a webhook among many.

It is made by `offsetzero.store.migrate.INDEXES`: that table may be large.
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

INDEX = "ix_webhook_deliveries_webhook_id_attempted_at"


def upgrade() -> None:
    """Nothing; it has its number for databases that were migrated when it made the index itself."""


def downgrade() -> None:
    op.execute(f"DROP INDEX IF EXISTS {INDEX}")
