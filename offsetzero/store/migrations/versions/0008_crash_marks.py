"""Which stay reads each partition of a group, and which event a member works on after another has died."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

UPGRADE = """
ALTER TABLE group_starts ADD COLUMN stay text;
CREATE TABLE crash_marks (
    group_name text NOT NULL,
    generation integer NOT NULL,
    source text NOT NULL,
    event_id text NOT NULL,
    redrive_no integer NOT NULL,
    member text NOT NULL,
    crashes integer NOT NULL DEFAULT 0,
    at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_crash_marks PRIMARY KEY (group_name, generation, source, event_id, redrive_no)
);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.drop_table("crash_marks")
    op.drop_column("group_starts", "stay")
