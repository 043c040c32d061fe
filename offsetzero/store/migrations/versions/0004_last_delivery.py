"""An index that finds the last delivery of a webhook among many."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

INDEX = "ix_webhook_deliveries_webhook_id_attempted_at"


def upgrade() -> None:
    op.create_index(INDEX, "webhook_deliveries", ["webhook_id", "attempted_at"])


def downgrade() -> None:
    op.drop_index(INDEX)
