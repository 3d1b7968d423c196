"""The command line of the sample, which gets Ctrl-C at every operation after the one that ends a migration."""

import os
import signal
import sys

import sample_command  # noqa: F401 - puts the sample's codemod in place

from mcore_unpatch.cli import main

committed = False


def strike(event: str, arguments: tuple[object, ...]) -> None:
    global committed
    if committed and event in ("open", "os.remove", "os.listdir", "os.scandir", "import", "compile"):
        os.kill(os.getpid(), signal.SIGINT)
    if event == "os.rename" and str(arguments[0]).endswith("done.json"):
        committed = True


sys.addaudithook(strike)
main()
