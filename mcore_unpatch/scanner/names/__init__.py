"""What the names and expressions of the scanned code stand for, across the files of the repository."""
