"""What became of each run, as numbered events; a trigger writes them."""

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

UPGRADE = """
ALTER TABLE runs ADD COLUMN last_event integer NOT NULL DEFAULT 0;
CREATE TABLE run_events (
    run_id uuid NOT NULL,
    number integer NOT NULL,
    kind text NOT NULL,
    state jsonb NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT pk_run_events PRIMARY KEY (run_id, number),
    CONSTRAINT fk_run_events_run_id FOREIGN KEY (run_id) REFERENCES runs (id) ON DELETE CASCADE,
    CONSTRAINT ck_run_events_kind CHECK (kind IN ('run', 'step'))
);
CREATE INDEX ix_run_events_at ON run_events (at);

-- Whoever changes a run or a step holds the row of the run, so numbers are taken in the order of commits. Who adds to
-- the tokens of a step does not, and could wait for somebody who waits for the step: that is no event of its own.
CREATE FUNCTION offsetzero_run_event() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER run_added AFTER INSERT ON runs FOR EACH ROW EXECUTE FUNCTION offsetzero_run_event('run', 'id');
CREATE TRIGGER run_changed AFTER UPDATE OF status ON runs FOR EACH ROW
    WHEN (NEW.status IS DISTINCT FROM OLD.status) EXECUTE FUNCTION offsetzero_run_event('run', 'id');
CREATE TRIGGER step_added AFTER INSERT ON run_steps FOR EACH ROW
    EXECUTE FUNCTION offsetzero_run_event('step', 'run_id');
CREATE TRIGGER step_changed AFTER UPDATE OF status, attempts, reason, detail, warning, due ON run_steps FOR EACH ROW
    WHEN (NEW IS DISTINCT FROM OLD) EXECUTE FUNCTION offsetzero_run_event('step', 'run_id');
"""
DOWNGRADE = """
DROP TRIGGER step_changed ON run_steps;
DROP TRIGGER step_added ON run_steps;
DROP TRIGGER run_changed ON runs;
DROP TRIGGER run_added ON runs;
DROP FUNCTION offsetzero_run_event;
DROP TABLE run_events;
ALTER TABLE runs DROP COLUMN last_event;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
