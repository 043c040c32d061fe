"""Alembic's environment: migrates the connection that `offsetzero.store.migrate` hands over."""

from alembic import context

from offsetzero.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, transaction_per_migration=True
)
with context.begin_transaction():
    context.run_migrations()
