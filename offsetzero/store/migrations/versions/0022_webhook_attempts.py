"""A second live secret of a webhook while it is rotated, and a log of each attempt to deliver."""

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

UPGRADE = """
ALTER TABLE webhooks ADD COLUMN previous_secret text, ADD COLUMN previous_until timestamptz;
CREATE TABLE webhook_attempts (
    webhook_id uuid NOT NULL,
    id uuid NOT NULL,
    message_id text NOT NULL,
    event_type text NOT NULL,
    attempt integer NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    duration_ms integer NOT NULL,
    delivered boolean NOT NULL,
    status_code integer,
    error text,
    CONSTRAINT pk_webhook_attempts PRIMARY KEY (webhook_id, id),
    CONSTRAINT fk_webhook_attempts_webhook_id FOREIGN KEY (webhook_id) REFERENCES webhooks (id) ON DELETE CASCADE
);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.drop_table("webhook_attempts")
    op.execute("ALTER TABLE webhooks DROP COLUMN previous_secret, DROP COLUMN previous_until")
