"""Operators over the LM head that never build `[tokens, vocab]`."""
