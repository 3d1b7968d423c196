"""Patches of nobody's known downstream: edits where the way to the seam is mechanical, steps where it is not."""
