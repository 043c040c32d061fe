"""What a key may do."""

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE api_keys ADD COLUMN role text NOT NULL DEFAULT 'writer'"
        " CONSTRAINT ck_api_keys_role CHECK (role IN ('reader', 'writer'))"
    )


def downgrade() -> None:
    op.execute("ALTER TABLE api_keys DROP COLUMN role")
