"""One look at a repository, from the paths a user names to the findings."""
