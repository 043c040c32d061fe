"""What was answered to requests that named an `Idempotency-Key`."""

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE idempotency_keys (
    tenant_id text NOT NULL,
    key text NOT NULL,
    fingerprint bytea NOT NULL,
    status integer NOT NULL,
    headers jsonb NOT NULL,
    body bytea NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_idempotency_keys PRIMARY KEY (tenant_id, key)
);
CREATE INDEX ix_idempotency_keys_at ON idempotency_keys (at);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.drop_table("idempotency_keys")
