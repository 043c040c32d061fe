"""Kafka and PostgreSQL as child processes of `offsetzero up`."""
