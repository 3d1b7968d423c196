"""Import statements: where they live in a file, how they are sorted there, and changing them without a trace."""
