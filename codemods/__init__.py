"""libcst rewrites of downstream call sites, run by `unpatch migrate`."""
