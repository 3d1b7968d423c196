"""The dependency the new code needs: where a repository lists its own, and that file with one requirement more."""
