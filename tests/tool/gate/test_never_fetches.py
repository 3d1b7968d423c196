"""`check` asks no package index, whatever it lacks; one option of one command does."""

import os
import subprocess
import sys
from pathlib import Path

from command import commands
from repository import Repository

ASKED = 77
# A process that ends with its own exit code as soon as it starts pip or opens a connection.
WATCHED = f"""
import os, sys

def watch(event, given):
    if event == "socket.connect" or (event == "subprocess.Popen" and "pip" in map(str, given[1])):
        os._exit({ASKED})

sys.addaudithook(watch)
"""
CHECK = "from mcore_unpatch.cli import main\nmain()\n"
FETCH = "from mcore_unpatch.stacks.at_hand import fetch\nfetch('0.18.0')\n"
PATCH = "from megatron.core.models.gpt import GPTModel\ndef fast(self): ...\nGPTModel.forward = fast\n"


def watched(code: str, folder: Path, *arguments: str) -> int:
    command = [sys.executable, "-c", WATCHED + code, *arguments]
    env = {**os.environ, "XDG_CACHE_HOME": str(folder.parent / "cache")}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, check=False).returncode


def test_one_option_of_one_command() -> None:
    every = {name for name, command in commands().items() for one in command.params if "--fetch" in one.opts}
    assert every == {"upgrade"}


def test_check_never_fetches(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    commit = "git+https://github.com/NVIDIA/Megatron-LM@0123456789abcdef0123456789abcdef01234567"
    repository.commit({"p.py": PATCH, "requirements.txt": f"megatron-core @ {commit}\n"})
    diff = "--- a/megatron/core/utils.py\n+++ b/megatron/core/utils.py\n@@ -1 +1 @@\n-a\n+b\n"
    repository.commit({"fix.patch": diff})
    assert watched(CHECK, repository.path, "check", "--no-cache") == 1
    assert watched(CHECK, repository.path, "check", "--base", "HEAD~1", "--no-cache") == 1
    assert watched(FETCH, repository.path) == ASKED  # else nothing was watched here
