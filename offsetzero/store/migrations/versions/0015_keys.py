"""An index of dead letters by their keys that many of one key do not slow down.

It is made by `offsetzero.store.migrate.INDEXES`: that table may be large.
"""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

UPGRADE = """
UPDATE dead_letters SET key = left(key, 800) WHERE length(key) > 800;
DROP INDEX IF EXISTS ix_dead_letters_key;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("DROP INDEX IF EXISTS ix_dead_letters_key")
