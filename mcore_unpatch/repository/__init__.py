"""The repository as it is read: which files, how they are opened, what git and its configuration say."""
