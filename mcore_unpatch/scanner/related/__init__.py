"""The lines that belong to a patch: where it is backed up, flagged, toggled and taken back."""
