"""The groups of the document product: indexer, summariser, notifier."""
