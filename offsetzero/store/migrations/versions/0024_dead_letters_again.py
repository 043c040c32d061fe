"""Dead letters of events that were redriven before: few, looked for by those that were sent.

Their index is made by `offsetzero.store.migrate.INDEXES`: that table may be large.
"""

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing; it has its number for databases that were migrated when it made the index itself."""


def downgrade() -> None:
    op.execute("DROP INDEX IF EXISTS ix_dead_letters_again")
