"""Reads a library from its source into what `library` knows of it: the same `Module` as of a repository's files."""
