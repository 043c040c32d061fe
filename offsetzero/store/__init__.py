"""The database: tables, migrations, connections."""
