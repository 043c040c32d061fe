"""Vectors of texts, what generations were made with, and pgvector where the role may make it.

Without pgvector, or the right to make it, all works that works without an endpoint for embeddings. The index by text is
made by `offsetzero.store.migrate.INDEXES`: that of a first version, by text alone, is dropped by 0033.
"""

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE group_generations ADD COLUMN made_with jsonb")
    op.execute("""
CREATE TABLE embeddings (
    document_id uuid NOT NULL,
    model text NOT NULL,
    dimensions integer NOT NULL,
    hash bytea NOT NULL,
    tenant_id text NOT NULL,
    vector real[] NOT NULL,
    CONSTRAINT pk_embeddings PRIMARY KEY (document_id, model, dimensions, hash)
)
""")
    op.execute("""
DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector') THEN
        CREATE EXTENSION IF NOT EXISTS vector;
    END IF;
EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_file THEN NULL;
END $$
""")


def downgrade() -> None:
    # The extension stays: it may have been there before, and others may use it.
    op.execute("DROP TABLE embeddings; ALTER TABLE group_generations DROP COLUMN made_with")
