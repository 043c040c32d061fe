"""Search in the document's language: a text search configuration for each, and the vector no longer generated.

PostgreSQL's own configurations leave stop words out, so that "to be or not to be" cannot be found. These copies keep
every word: they stem and do nothing else. The name of the language is stored as text: a column of type regconfig
would keep pg_upgrade from working.
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Those of PostgreSQL 15, the oldest that is supported. Fixed here: a migration never changes.
LANGUAGES = (
    "arabic",
    "armenian",
    "basque",
    "catalan",
    "danish",
    "dutch",
    "english",
    "finnish",
    "french",
    "german",
    "greek",
    "hindi",
    "hungarian",
    "indonesian",
    "irish",
    "italian",
    "lithuanian",
    "nepali",
    "norwegian",
    "portuguese",
    "romanian",
    "russian",
    "serbian",
    "spanish",
    "swedish",
    "tamil",
    "turkish",
    "yiddish",
)

CONFIGURATION = """
CREATE TEXT SEARCH DICTIONARY offsetzero_{0}_stem (TEMPLATE = pg_catalog.snowball, LANGUAGE = {0});
CREATE TEXT SEARCH CONFIGURATION offsetzero_{0} (COPY = pg_catalog.{0});
ALTER TEXT SEARCH CONFIGURATION offsetzero_{0}
    ALTER MAPPING REPLACE pg_catalog.{0}_stem WITH offsetzero_{0}_stem;
"""

# Some languages take Latin words for English ones.
LATIN = """
DO $$
DECLARE
    found regconfig;
BEGIN
    FOR found IN
        SELECT DISTINCT mapcfg::regconfig FROM pg_ts_config_map
        JOIN pg_ts_config c ON c.oid = mapcfg AND c.cfgname LIKE 'offsetzero\\_%'
        WHERE mapdict = 'pg_catalog.english_stem'::regdictionary
    LOOP
        EXECUTE format('ALTER TEXT SEARCH CONFIGURATION %s ALTER MAPPING REPLACE pg_catalog.english_stem '
            'WITH offsetzero_english_stem', found);
    END LOOP;
END
$$;
"""

TABLES = """
ALTER TABLE indexed_documents ADD COLUMN language text NOT NULL DEFAULT 'simple';
CREATE INDEX ix_indexed_documents_tenant_id_language ON indexed_documents (tenant_id, language);
ALTER TABLE chunks ADD COLUMN language text NOT NULL DEFAULT 'simple';
ALTER TABLE chunks ALTER COLUMN words DROP EXPRESSION;
"""

DOWNGRADE = """
DROP INDEX ix_indexed_documents_tenant_id_language;
ALTER TABLE indexed_documents DROP COLUMN language;
ALTER TABLE chunks DROP COLUMN language, DROP COLUMN words;
ALTER TABLE chunks ADD COLUMN words tsvector NOT NULL
    GENERATED ALWAYS AS (to_tsvector('simple'::regconfig, translate(text, '<>', '  '))) STORED;
CREATE INDEX ix_chunks_words ON chunks USING gin (words);
"""


def upgrade() -> None:
    for language in LANGUAGES:
        op.execute(CONFIGURATION.format(language))
    op.execute(LATIN)
    op.execute(TABLES)


def downgrade() -> None:
    op.execute(DOWNGRADE)
    for language in LANGUAGES:
        op.execute(f"DROP TEXT SEARCH CONFIGURATION offsetzero_{language}")
    for language in LANGUAGES:
        op.execute(f"DROP TEXT SEARCH DICTIONARY offsetzero_{language}_stem")
