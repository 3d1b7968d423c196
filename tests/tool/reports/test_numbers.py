"""One repository with every kind of finding: all commands and all formats tell the same numbers of it."""

import re
import shutil
from collections import Counter
from pathlib import Path

from command import unpatch
from repository import Repository

SAMPLE = Path(__file__).parents[3] / "examples" / "tiny_rl"
FILES = {
    "requirements.txt": "megatron-core==0.19.2\n",
    "old.py": """
        import megatron.core
        from megatron.core import utils
        from packaging.version import Version

        if Version(megatron.core.__version__) < Version("0.14"):
            utils.get_model_config = print
    """,
    "added.py": "from megatron.core.models.gpt import GPTModel\nGPTModel.our_own = print\n",
    "possible.py": """
        import torch
        from megatron.core import parallel_state

        def new(self, *args):
            return args

        def patch(model):
            model.forward = new
    """,
    "unused.py": "x = 1  # unpatch: ignore\n",
    "tests/test_a.py": "from megatron.core import utils\nutils.get_model_config = print\n",
    "a.patch": """
        diff --git a/megatron/core/utils.py b/megatron/core/utils.py
        --- a/megatron/core/utils.py
        +++ b/megatron/core/utils.py
        @@ -1,3 +1,3 @@ def get_model_config(model):
        -    return a
        +    return b
    """,
}
HEADS = {"tests": "In tests", "patch_files": "Patch files", "possible": "Possible, by a method's name alone"}
LEFT = {"code": "in code", "tests": "in tests", "patch_files": "in patch files"}


def read(*arguments: str, cwd: Path) -> str:
    """What a command prints, on one line."""
    result = unpatch(*arguments, cwd=cwd)
    return " ".join((result.out + result.err).split())


def number(pattern: str, text: str) -> int:
    """The one number at a place of a text."""
    (found,) = re.findall(pattern, text)
    return int(found)


def test_all_commands_and_formats_count_alike(tmp_path: Path) -> None:
    shutil.copytree(SAMPLE, tmp_path, dirs_exist_ok=True)
    Repository(tmp_path).commit(FILES)
    data = unpatch("scan", "--output-format", "json", cwd=tmp_path).json
    counts: dict[str, dict[str, int]] = data["counts"]
    total = {group: numbers["total"] for group, numbers in counts.items()}
    assert all(total.values()), total  # something of every group
    assert sum(total.values()) == len(data["findings"])

    text = read("scan", cwd=tmp_path)
    head = re.search(r"(\d+) patches and (\d+) uses of known patches:", text)
    assert head is not None
    assert sum(map(int, head.groups())) == total["code"]
    assert {group: number(rf"{words}: (\d+) ", text) for group, words in HEADS.items()}.items() <= total.items()
    assert number(r"(\d+) can be rewritten", text) == counts["code"]["rewrite"] + counts["code"]["rewrite_unsafe"]

    page = unpatch("scan", "--output-format", "html", cwd=tmp_path).out
    assert Counter(re.findall(r'data-group="(\w+)"', page)) == total

    outcome = unpatch("migrate", "--diff", "--output-format", "json", cwd=tmp_path).json["counts"]
    both = {group: Counter(outcome["done"][group]) + Counter(outcome["left"][group]) for group in counts}
    assert both == {group: +Counter(numbers) for group, numbers in counts.items()}
    table = read("migrate", "--diff", cwd=tmp_path)
    left = {group: number(rf"(\d+) {words} \(", table) for group, words in LEFT.items()}
    assert left == {group: outcome["left"][group]["total"] for group in LEFT}

    kinds = f"{head[0].removesuffix(':').replace(' and', ',')}, 1 in tests, 1 patch file"
    assert f"{kinds} and 1 unused ignore comment, in " in read("check", cwd=tmp_path)
    pinned = read("pin", cwd=tmp_path)
    patches = number(r"that (\d+) patches replace", pinned)
    # The sample's LM head is replaced on an instance: a name of no class, which no lock can hold.
    rest = f"1 patch, {head[2]} uses of known patches, 1 patch file and 1 unused ignore comment."
    assert f"Not pinned: {rest}" in pinned
    assert patches + 1 + int(head[2]) == total["code"] + total["tests"]
    assert f"{rest.removesuffix('.')}, in " in read("check", cwd=tmp_path)
    accepted = number(r"Wrote (\d+) findings", read("check", "--write-baseline", cwd=tmp_path))
    assert accepted == 1 + int(head[2]) + total["patch_files"] + total["other"]
    assert read("check", cwd=tmp_path).startswith("No new patch")
