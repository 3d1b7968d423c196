"""Runs a test's function on real gloo ranks that hold a real megatron-core of a chosen release."""

from harness.pool import RELEASES, run_on_ranks

__all__ = ["RELEASES", "run_on_ranks"]
