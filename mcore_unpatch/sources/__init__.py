"""The files of a repository: read with limits, parsed once, found by the imports that name them."""
