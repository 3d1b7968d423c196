"""Operators on the LM head that never build `[tokens, vocab]`."""
