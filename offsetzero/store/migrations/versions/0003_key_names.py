"""A name for each API key: what it is for, as the person who made it said."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Keys made before have an empty name."""
    op.add_column("api_keys", sa.Column("name", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    """The names are lost."""
    op.drop_column("api_keys", "name")
