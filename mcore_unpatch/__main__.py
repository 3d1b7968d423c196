"""`python -m mcore_unpatch`: imports what it needs, and nothing from the folder it is run in."""

import os
import sys

if not sys.flags.safe_path and sys.path and sys.path[0] in ("", os.path.realpath(os.curdir)):
    del sys.path[0]  # the current folder, which `-m` puts first

from mcore_unpatch.cli import main

main()
