"""Writing many files as if they were one: all of them or none, a journal of what they were, and back again."""
