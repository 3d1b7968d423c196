"""Packed sequences, context parallelism and pipeline stages: how tokens are laid out, split and gathered."""
