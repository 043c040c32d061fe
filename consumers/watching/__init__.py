"""What is stuck or stalled, and how a member is."""
