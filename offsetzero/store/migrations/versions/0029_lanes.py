"""The lane of a run; those from before lanes were chosen are in that for live traffic."""

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE runs ADD COLUMN lane text NOT NULL DEFAULT 'normal',"
        " ADD CONSTRAINT ck_runs_lane CHECK (lane IN ('normal', 'bulk'));"
        " CREATE INDEX ix_runs_in_flight ON runs (tenant_id) WHERE finished_at IS NULL AND lane = 'normal'"
    )


def downgrade() -> None:
    op.execute("ALTER TABLE runs DROP COLUMN lane")
