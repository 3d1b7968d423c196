"""Wrappers around `forward` of a module that call the original once: PyTorch's forward hooks and pre-hooks."""
