"""The first tables: keys, documents, runs, outbox, processed events, index, summaries, webhooks."""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE api_keys (
    key_hash bytea CONSTRAINT pk_api_keys PRIMARY KEY,
    tenant_id text NOT NULL,
    hint text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz
);

CREATE TABLE documents (
    id uuid CONSTRAINT pk_documents PRIMARY KEY,
    tenant_id text NOT NULL,
    name text NOT NULL,
    content_type text NOT NULL,
    uri text NOT NULL,
    size_bytes bigint NOT NULL,
    sha256 text NOT NULL,
    version bigint NOT NULL DEFAULT 1,
    uploaded_at timestamptz NOT NULL DEFAULT now(),
    deleted_at timestamptz
);
CREATE UNIQUE INDEX ux_documents_tenant_id_sha256 ON documents (tenant_id, sha256) WHERE deleted_at IS NULL;

CREATE TABLE runs (
    id uuid CONSTRAINT pk_runs PRIMARY KEY,
    tenant_id text NOT NULL,
    document_id uuid NOT NULL,
    status text NOT NULL DEFAULT 'queued'
        CONSTRAINT ck_runs_status
        CHECK (status IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
    created_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    finished_at timestamptz
);
CREATE INDEX ix_runs_tenant_id_id ON runs (tenant_id, id);
CREATE INDEX ix_runs_document_id ON runs (document_id);

CREATE TABLE run_steps (
    run_id uuid NOT NULL CONSTRAINT fk_run_steps_run_id REFERENCES runs (id) ON DELETE CASCADE,
    step text NOT NULL,
    required boolean NOT NULL DEFAULT false,
    status text NOT NULL DEFAULT 'queued'
        CONSTRAINT ck_run_steps_status
        CHECK (status IN ('queued', 'running', 'waiting', 'succeeded', 'failed', 'cancelled')),
    attempts integer NOT NULL DEFAULT 0,
    reason text,
    detail text,
    warning text,
    due timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    CONSTRAINT pk_run_steps PRIMARY KEY (run_id, step)
);

CREATE TABLE outbox (
    id uuid CONSTRAINT pk_outbox PRIMARY KEY,
    aggregatetype text NOT NULL,
    aggregateid text,
    type text NOT NULL,
    payload bytea,
    topic text NOT NULL,
    headers jsonb NOT NULL DEFAULT '{}'::jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz
);
CREATE INDEX ix_outbox_unpublished ON outbox (id) WHERE published_at IS NULL;
CREATE INDEX ix_outbox_published_at ON outbox (published_at) WHERE published_at IS NOT NULL;
CREATE FUNCTION offsetzero_notify_outbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('offsetzero_outbox', '');
    RETURN NULL;
END
$$;
CREATE TRIGGER outbox_notify AFTER INSERT ON outbox
    FOR EACH STATEMENT EXECUTE FUNCTION offsetzero_notify_outbox();

CREATE TABLE processed_events (
    group_name text NOT NULL,
    generation integer NOT NULL,
    source text NOT NULL,
    event_id text NOT NULL,
    redrive_no integer NOT NULL,
    outcome text NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_processed_events PRIMARY KEY (group_name, generation, source, event_id, redrive_no)
);

CREATE TABLE indexed_documents (
    document_id uuid CONSTRAINT pk_indexed_documents PRIMARY KEY,
    tenant_id text NOT NULL,
    name text NOT NULL,
    pages integer NOT NULL,
    indexed_at timestamptz NOT NULL DEFAULT now(),
    removed_at timestamptz
);

CREATE TABLE chunks (
    document_id uuid NOT NULL
        CONSTRAINT fk_chunks_document_id REFERENCES indexed_documents (document_id) ON DELETE CASCADE,
    number integer NOT NULL,
    tenant_id text NOT NULL,
    page integer NOT NULL,
    text text NOT NULL,
    words tsvector NOT NULL
        GENERATED ALWAYS AS (to_tsvector('simple'::regconfig, translate(text, '<>', '  '))) STORED,
    CONSTRAINT pk_chunks PRIMARY KEY (document_id, number)
);
CREATE INDEX ix_chunks_words ON chunks USING gin (words);

CREATE TABLE summaries (
    document_id uuid CONSTRAINT pk_summaries PRIMARY KEY,
    tenant_id text NOT NULL,
    text text NOT NULL,
    model text NOT NULL,
    input_tokens integer,
    output_tokens integer,
    created_at timestamptz NOT NULL DEFAULT now(),
    removed_at timestamptz
);

CREATE TABLE webhooks (
    id uuid CONSTRAINT pk_webhooks PRIMARY KEY,
    tenant_id text NOT NULL,
    url text NOT NULL,
    secret text NOT NULL,
    event_types text[] NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    disabled_at timestamptz
);
CREATE INDEX ix_webhooks_tenant_id ON webhooks (tenant_id);

CREATE TABLE webhook_deliveries (
    webhook_id uuid NOT NULL
        CONSTRAINT fk_webhook_deliveries_webhook_id REFERENCES webhooks (id) ON DELETE CASCADE,
    message_id text NOT NULL,
    event_type text NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    status_code integer,
    error text,
    attempted_at timestamptz NOT NULL DEFAULT now(),
    delivered_at timestamptz,
    CONSTRAINT pk_webhook_deliveries PRIMARY KEY (webhook_id, message_id)
);
"""

DOWNGRADE = """
DROP TABLE webhook_deliveries, webhooks, summaries, chunks, indexed_documents, processed_events, outbox,
    run_steps, runs, documents, api_keys;
DROP FUNCTION offsetzero_notify_outbox();
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
