"""An index of dead letters by their keys that many of one key do not slow down."""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

UPGRADE = """
UPDATE dead_letters SET key = left(key, 800) WHERE length(key) > 800;
DROP INDEX ix_dead_letters_key;
CREATE INDEX ix_dead_letters_key ON dead_letters (key);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.drop_index("ix_dead_letters_key", "dead_letters")
    op.execute("CREATE INDEX ix_dead_letters_key ON dead_letters USING hash (key)")
