"""What a release of the library does to code that patches or uses it: the one judge that every command asks."""
