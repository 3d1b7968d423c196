"""The Megatrons that a repository runs: found in its own files, resolved to releases. Nothing of it is executed."""
