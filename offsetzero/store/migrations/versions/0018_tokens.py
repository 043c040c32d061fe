"""What the steps of runs have used of a provider."""

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE run_steps ADD COLUMN input_tokens bigint, ADD COLUMN output_tokens bigint")


def downgrade() -> None:
    op.execute("ALTER TABLE run_steps DROP COLUMN input_tokens, DROP COLUMN output_tokens")
