"""`python -m mcore_unpatch`."""

from mcore_unpatch.cli import main

main()
