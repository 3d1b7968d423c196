"""Runs a test's function on real gloo ranks that hold a real megatron-core of a chosen release."""

from harness.as_test import on_ranks, on_releases
from harness.pool import RELEASES, run_on_ranks

__all__ = ["RELEASES", "on_ranks", "on_releases", "run_on_ranks"]
