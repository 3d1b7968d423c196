"""Hashes of upstream functions, and how a function at hand compares with them."""
