"""Schedules: what is due by cron's rules in a zone is done once for each fire time."""
