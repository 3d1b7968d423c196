"""What a patch does, what breaks on a release, and what can become of it."""
