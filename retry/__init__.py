"""The error taxonomy, retry tiers and dead letters."""
