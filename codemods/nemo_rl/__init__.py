"""NeMo RL: the class-level patch of its linear cross-entropy fusion moves to the hook."""
