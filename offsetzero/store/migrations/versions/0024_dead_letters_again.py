"""Dead letters of events that were redriven before: few, looked for by those that were sent."""

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE INDEX ix_dead_letters_again ON dead_letters (group_name, event_id) WHERE redrive_no > 0")


def downgrade() -> None:
    op.drop_index("ix_dead_letters_again", "dead_letters")
