"""From a stored document to clean text, page by page, and to chunks for the index."""
