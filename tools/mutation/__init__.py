"""Small faults put into the package, and which of them the tests notice: `python -m tools.mutation`."""
