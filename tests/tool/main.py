"""The command `unpatch`, as a script."""

from mcore_unpatch.__main__ import main

if __name__ == "__main__":
    main()
