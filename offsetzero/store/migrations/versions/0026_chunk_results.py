"""Answers of models about parts of documents, how far a step is, and tokens that were estimated."""

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE chunk_results (
    source text NOT NULL,
    event_id text NOT NULL,
    model text NOT NULL,
    chunk_hash bytea NOT NULL,
    document_id uuid NOT NULL,
    text text NOT NULL,
    answered_by text NOT NULL,
    input_tokens integer NOT NULL,
    output_tokens integer NOT NULL,
    estimated_tokens integer NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_chunk_results PRIMARY KEY (source, event_id, model, chunk_hash)
);
CREATE INDEX ix_chunk_results_document_id ON chunk_results (document_id);
CREATE INDEX ix_chunk_results_at ON chunk_results (at);
ALTER TABLE summaries ADD COLUMN estimated_tokens integer;
ALTER TABLE run_steps ADD COLUMN estimated_tokens bigint, ADD COLUMN parts integer, ADD COLUMN parts_done integer;
CREATE OR REPLACE TRIGGER step_changed
    AFTER UPDATE OF status, attempts, reason, detail, warning, due, parts_done ON run_steps FOR EACH ROW
    WHEN (NEW IS DISTINCT FROM OLD) EXECUTE FUNCTION offsetzero_run_event('step', 'run_id');
"""
DOWNGRADE = """
CREATE OR REPLACE TRIGGER step_changed
    AFTER UPDATE OF status, attempts, reason, detail, warning, due ON run_steps FOR EACH ROW
    WHEN (NEW IS DISTINCT FROM OLD) EXECUTE FUNCTION offsetzero_run_event('step', 'run_id');
ALTER TABLE run_steps DROP COLUMN estimated_tokens, DROP COLUMN parts, DROP COLUMN parts_done;
ALTER TABLE summaries DROP COLUMN estimated_tokens;
DROP TABLE chunk_results;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
