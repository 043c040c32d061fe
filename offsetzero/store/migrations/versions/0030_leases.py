"""Leases of steps: a number that rises with each, who has it, and until when."""

from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

# A lease is no event of its own, and nobody's business who follows a run.
UPGRADE = """
ALTER TABLE run_steps ADD COLUMN fence bigint NOT NULL DEFAULT 0,
    ADD COLUMN owner text, ADD COLUMN deadline timestamptz;
CREATE OR REPLACE FUNCTION offsetzero_run_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    state jsonb := to_jsonb(NEW) - '{last_event,fence,owner,deadline}'::text[];
    changed uuid := state ->> TG_ARGV[1];
    next integer;
BEGIN
    UPDATE runs SET last_event = last_event + 1 WHERE id = changed RETURNING last_event INTO next;
    INSERT INTO run_events (run_id, number, kind, state) VALUES (changed, next, TG_ARGV[0], state);
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER step_changed
    AFTER UPDATE OF status, attempts, reason, detail, warning, due, parts_done ON run_steps FOR EACH ROW
    WHEN ((NEW.status, NEW.attempts, NEW.reason, NEW.detail, NEW.warning, NEW.due, NEW.parts, NEW.parts_done)
    IS DISTINCT FROM
    (OLD.status, OLD.attempts, OLD.reason, OLD.detail, OLD.warning, OLD.due, OLD.parts, OLD.parts_done))
    EXECUTE FUNCTION offsetzero_run_event('step', 'run_id');
"""
DOWNGRADE = """
CREATE OR REPLACE TRIGGER step_changed
    AFTER UPDATE OF status, attempts, reason, detail, warning, due, parts_done ON run_steps FOR EACH ROW
    WHEN (NEW IS DISTINCT FROM OLD) EXECUTE FUNCTION offsetzero_run_event('step', 'run_id');
CREATE OR REPLACE FUNCTION offsetzero_run_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    state jsonb := to_jsonb(NEW) - 'last_event';
    changed uuid := state ->> TG_ARGV[1];
    next integer;
BEGIN
    UPDATE runs SET last_event = last_event + 1 WHERE id = changed RETURNING last_event INTO next;
    INSERT INTO run_events (run_id, number, kind, state) VALUES (changed, next, TG_ARGV[0], state);
    RETURN NULL;
END
$$;
DROP INDEX IF EXISTS ix_run_steps_deadline;
ALTER TABLE run_steps DROP COLUMN fence, DROP COLUMN owner, DROP COLUMN deadline;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
