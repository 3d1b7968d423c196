"""What belongs to a patch: the function it puts in place, where it is backed up and taken back."""
