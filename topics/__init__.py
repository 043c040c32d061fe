"""The declared catalogue of topics, the difference to a cluster, and lag."""
