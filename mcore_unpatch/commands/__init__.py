"""The commands of `unpatch`: each checks its options, calls the library, and writes a report."""
