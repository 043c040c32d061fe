"""A member's partitions and records, on the polling thread: where they begin, what is fetched, what is committed."""
