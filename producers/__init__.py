"""Publishing: the Publisher, the transactional outbox and its relay."""
