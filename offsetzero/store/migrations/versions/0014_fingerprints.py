"""An index of dead letters by their fingerprints, for what is chosen by the beginning of one."""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("UPDATE dead_letters SET fingerprint = left(fingerprint, 64) WHERE length(fingerprint) > 64")
    op.execute(
        "CREATE INDEX ix_dead_letters_group_name_fingerprint ON dead_letters (group_name, fingerprint text_pattern_ops)"
    )


def downgrade() -> None:
    op.drop_index("ix_dead_letters_group_name_fingerprint", "dead_letters")
