"""What belongs to a patch: the function it puts in place, where it is backed up, flagged, toggled and taken back."""
