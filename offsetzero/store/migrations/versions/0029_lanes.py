"""The lane of a run; those from before lanes were chosen are in that for live traffic.

The table is large, and locked until this ends: the check is validated by 0032, and the index of what is in flight made
by `offsetzero.store.migrate.INDEXES`.
"""

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE runs ADD COLUMN lane text NOT NULL DEFAULT 'normal',"
        " ADD CONSTRAINT ck_runs_lane CHECK (lane IN ('normal', 'bulk')) NOT VALID"
    )


def downgrade() -> None:
    op.execute("ALTER TABLE runs DROP COLUMN lane")
