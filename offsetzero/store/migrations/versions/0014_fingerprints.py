"""An index of dead letters by their fingerprints, for what is chosen by the beginning of one.

It is made by `offsetzero.store.migrate.INDEXES`: that table may be large.
"""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("UPDATE dead_letters SET fingerprint = left(fingerprint, 64) WHERE length(fingerprint) > 64")


def downgrade() -> None:
    op.execute("DROP INDEX IF EXISTS ix_dead_letters_group_name_fingerprint")
