"""`unpatch verify`: proof on the user's machine and versions that the new path gives the old numbers."""
