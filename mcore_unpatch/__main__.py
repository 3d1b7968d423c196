"""`python -m mcore_unpatch`: imports what it needs, and nothing from the folder it is run in."""

import os
import sys

try:
    here = os.getcwd()  # noqa: PTH109 - before anything else is imported
except FileNotFoundError:
    print("error: the current folder does not exist any more: go to another one", file=sys.stderr)
    sys.exit(2)
if not sys.flags.safe_path and sys.path and sys.path[0] in ("", here):
    del sys.path[0]  # the current folder, which `-m` puts first


def main() -> None:
    """Entry point of the command: Ctrl-C before the command itself takes over ends it in one line, too."""
    try:
        from mcore_unpatch import cli

        cli.main()
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
