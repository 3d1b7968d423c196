"""Several processes: the same result as one, and a worker that dies is told, not waited for."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from checking import write_files
from command import unpatch_process
from repository import GIT, Repository

from mcore_unpatch.errors import UsageError
from mcore_unpatch.megatron.versions import Version
from mcore_unpatch.scanner.sources.parsed import Parsed
from mcore_unpatch.scanner.sources.work_tree import WorkTree
from mcore_unpatch.survey import survey
from mcore_unpatch.survey.parallel import ScannedPart, Task, analyse

PATCH = "from megatron.core.models.gpt import GPTModel\nGPTModel.forward = print\n"
PADDING = b"x = 1\n" * 150_000


def large_tree(folder: Path) -> list[str]:
    files = {f"part{number}/{name}": data for number in range(4) for name, data in (("a.py", PATCH), ("b.py", PADDING))}
    write_files(folder, files)
    return list(files)


def newest(_: str) -> tuple[Version, ...]:
    return ((0, 19),)


def run(paths: list[str], tree: WorkTree, task: Task, jobs: int) -> Iterator[ScannedPart]:
    return analyse(paths, [tree.size(path) for path in paths], task, jobs, Parsed())


def test_one_process_and_two_find_the_same(tmp_path: Path) -> None:
    paths, tree = large_tree(tmp_path), WorkTree(tmp_path)
    task = Task(tree.read, tree.exists, newest, mocks=False)
    found = []
    for jobs in (1, 2):
        parts = list(run(paths, tree, task, jobs))
        assert sum(part.files for part in parts) == len(paths)
        found.append(sorted(finding.path for part in parts for finding in part.findings))
    assert found[0] == found[1] == [f"part{number}/a.py" for number in range(4)]


def test_one_job_stays_in_this_process(tmp_path: Path) -> None:
    paths, tree = large_tree(tmp_path), WorkTree(tmp_path)
    readers: set[int] = set()

    def read(path: str) -> bytes:
        readers.add(os.getpid())
        return tree.read(path)

    list(run(paths, tree, Task(read, tree.exists, newest, mocks=False), 1))
    assert readers == {os.getpid()}


def test_a_worker_that_dies_is_an_error(tmp_path: Path) -> None:
    paths, tree, here = large_tree(tmp_path), WorkTree(tmp_path), os.getpid()

    def read(path: str) -> bytes:
        if os.getpid() != here:
            os._exit(1)
        return tree.read(path)

    with pytest.raises(UsageError, match="a worker process died"):
        list(run(paths, tree, Task(read, tree.exists, newest, mocks=False), 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["scan", "--output-format", "json"],
        ["migrate", "--diff"],
    ],
    ids=" ".join,
)
def test_the_order_is_the_same_whatever_the_jobs(command: list[str], tmp_path: Path) -> None:
    several = (
        "from megatron.core.models.gpt import GPTModel\n"
        "from megatron.core.transformer.mlp import MLP\n"
        "def fast(self, input_ids, position_ids, attention_mask, labels=None, **kwargs):\n"
        "    return self.log_probs(self.decoder(input_ids), labels)\n"
        "GPTModel.forward = MLP.forward = fast; GPTModel._postprocess = print  # unpatch: ignore[MCU9]\n"
        "setattr(GPTModel, 'forward', fast); setattr(MLP, 'forward', fast)\n"
    )
    repository = Repository(tmp_path)
    repository.commit({"plain.py": "x = 1\n"})
    for number in range(6):
        broken = b"import megatron.core\nmegatron.core.forward = (\n"
        repository.write({f"p{number}/a.py": several, f"p{number}/b.py": PADDING, f"p{number}/c.py": broken})
    repository.commit(
        {"fix.patch": "--- a/megatron/core/utils.py\n+++ b/megatron/core/utils.py\n@@ -1 +1 @@\n-a\n+b\n"}
    )
    results = {
        unpatch_process(*command, "--jobs", jobs, cwd=tmp_path, env={**GIT, "PYTHONHASHSEED": seed})
        for jobs, seed in (("1", "0"), ("4", "1"))
    }
    assert len(results) == 1
    [(_, out, err)] = results
    assert "p5" in out + err


def test_a_process_that_may_use_few_cores_starts_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 5}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert survey._cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    assert survey._cores() == 64
