"""Generations of projections; the indexer's tables become those of its first one."""

from alembic import op
from sqlalchemy import text

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE group_generations (
    group_name text NOT NULL,
    generation integer NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_group_generations PRIMARY KEY (group_name, generation)
);
CREATE TABLE group_pointers (
    group_name text CONSTRAINT pk_group_pointers PRIMARY KEY,
    generation integer NOT NULL,
    fence bigint NOT NULL DEFAULT 1,
    moved_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT fk_group_pointers_generation FOREIGN KEY (group_name, generation)
        REFERENCES group_generations (group_name, generation)
);
CREATE TABLE group_positions (
    group_name text NOT NULL,
    generation integer NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    topic_id text NOT NULL,
    position bigint NOT NULL,
    CONSTRAINT pk_group_positions PRIMARY KEY (group_name, generation, topic, partition)
) WITH (fillfactor = 40);
CREATE SCHEMA indexer_g1;
ALTER TABLE indexed_documents SET SCHEMA indexer_g1;
ALTER TABLE chunks SET SCHEMA indexer_g1;
INSERT INTO group_generations (group_name, generation) VALUES ('indexer', 1);
INSERT INTO group_pointers (group_name, generation) VALUES ('indexer', 1);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    schema = op.get_bind().execute(text("SELECT quote_ident(current_schema())")).scalar_one()
    op.execute(f"ALTER TABLE indexer_g1.indexed_documents SET SCHEMA {schema}")
    op.execute(f"ALTER TABLE indexer_g1.chunks SET SCHEMA {schema}")
    op.execute("DROP SCHEMA indexer_g1")
    op.execute("DROP TABLE group_positions, group_pointers, group_generations")
