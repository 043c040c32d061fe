"""The index of vectors by text alone goes: `offsetzero.store.migrate.INDEXES` has one by text and tenant."""

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("DROP INDEX IF EXISTS ix_embeddings_hash")


def downgrade() -> None:
    pass  # the other one serves the same statements
