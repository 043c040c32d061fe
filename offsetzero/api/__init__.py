"""HTTP for services: intake, runs, search, webhook subscriptions."""
