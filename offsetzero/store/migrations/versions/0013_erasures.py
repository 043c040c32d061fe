"""The audit of erasures; documents that were deleted before lose their names.

Dead letters are found by their keys; that index is made by `offsetzero.store.migrate.INDEXES`: the table may be large.
"""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE erasures (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    document_id uuid,
    who text NOT NULL,
    why text NOT NULL,
    documents bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    ended text,
    CONSTRAINT pk_erasures PRIMARY KEY (id)
);
UPDATE documents SET name = '' WHERE deleted_at IS NOT NULL;
UPDATE run_steps s SET detail = NULL, warning = NULL FROM runs r JOIN documents d ON d.id = r.document_id
WHERE r.id = s.run_id AND d.deleted_at IS NOT NULL;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("DROP INDEX IF EXISTS ix_dead_letters_key")
    op.drop_table("erasures")
