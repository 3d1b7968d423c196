"""What Dockerfiles, scripts, workflows and submodules install: small trees, one for each way that is seen outside."""

from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, unpatch
from repository import Repository

from mcore_unpatch.stacks.stacks import Stacks

LM = "https://github.com/NVIDIA/Megatron-LM.git"


def found(folder: Path, files: dict[str, str]) -> dict[str, str]:
    """The stacks of a repository by name, and where each is said first."""
    write_files(folder, files)
    return {stack.name: stack.place for stack in Stacks(folder).all}


WORKFLOW = f"""\
jobs:
  a:
    - run: |
        V=core_v0.17.0
        pip3 install git+{LM}@$V
    - uses: actions/checkout@v4
      with:
        repository: RLinf/Megatron-LM
        ref: core_v0.11.0_x
    - run: git clone {LM} && cd Megatron-LM && git checkout ${{{{ inputs.ref }}}}
"""


def test_a_workflow(tmp_path: Path) -> None:
    assert found(tmp_path, {".github/workflows/a.yml": WORKFLOW}) == {
        "0.17.0": ".github/workflows/a.yml:5",
        "RLinf/Megatron-LM@core_v0.11.0_x": ".github/workflows/a.yml:8",
    }


def test_what_a_readme_says_is_a_hint(tmp_path: Path) -> None:
    assert (
        found(tmp_path, {"README.md": f"```\ngit clone {LM}\ncd Megatron-LM\ngit checkout core_v0.12.1\n```\n"}) == {}
    )
    stacks = Stacks(tmp_path)
    assert [stack.name for stack in stacks.hints] == ["0.12.1"]
    told = "0.12.1: README.md:4, only a hint, but no project file names a release."
    assert str(stacks.of("a.py")) == f"Judged for megatron-core {told}"
    assert stacks.asked("a.py") is None
    assert stacks.pinned("a.py") == ()
    write_files(tmp_path, {"requirements.txt": "megatron-core==0.18.0\n"})
    assert [stack.name for stack in Stacks(tmp_path).of("a.py").stacks] == ["0.18.0"]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


class TestSubmodules:
    """The commit is that of the gitlink; a carrier is asked for its own."""

    COMMIT = "71e418ea7d7b3a6c9a53238c543c3e0b43e11026"

    def gitlink(self, repository: Repository, path: str, commit: str) -> None:
        repository.git("update-index", "--add", "--cacheinfo", f"160000,{commit},{path}")
        repository.git("commit", "-qm", "submodule")

    def modules(self, path: str, name: str) -> str:
        return f'[submodule "{path}"]\n\tpath = {path}\n\turl = https://github.com/NVIDIA/{name}.git\n'

    def test_megatron_itself(self, repository: Repository) -> None:
        repository.commit({".gitmodules": self.modules("third_party/Megatron-LM", "Megatron-LM")})
        self.gitlink(repository, "third_party/Megatron-LM", self.COMMIT)
        (stack,) = Stacks(repository.path).all
        assert (stack.name, stack.place, stack.revision.releases) == ("71e418ea", ".gitmodules:1", ("0.18.0", "0.19.0"))

    def test_a_commit_that_is_not_known_and_lies_here(self, repository: Repository) -> None:
        repository.commit({".gitmodules": self.modules("third_party/Megatron-LM", "Megatron-LM")})
        self.gitlink(repository, "third_party/Megatron-LM", "ab" * 20)
        (repository.path / "third_party/Megatron-LM/megatron/core").mkdir(parents=True)
        result = unpatch("upgrade", cwd=repository.path)
        assert result.code == CLEAN
        said = " ".join(result.err.split())
        assert "note: abababab (.gitmodules:1) is judged as 0.19.2: not among the commits" in said
        assert "pass its source, which is here: --from third_party/Megatron-LM" in said

    def test_without_a_commit(self, repository: Repository) -> None:
        repository.commit({".gitmodules": self.modules("Megatron-LM", "Megatron-LM")})
        stacks = Stacks(repository.path)
        assert stacks.all == ()
        assert "the submodule Megatron-LM has no recorded commit" in stacks.found.notes[0]

    def test_inside_a_carrier(self, repository: Repository) -> None:
        source = '{ editable = "3rdparty/Megatron-Bridge/3rdparty/Megatron-LM" }'
        lock = f'[[package]]\nname = "megatron-core"\nsource = {source}\n'
        repository.commit({".gitmodules": self.modules("3rdparty/Megatron-Bridge", "Megatron-Bridge"), "uv.lock": lock})
        self.gitlink(repository, "3rdparty/Megatron-Bridge", self.COMMIT)
        (stack,) = Stacks(repository.path).all
        assert (stack.name, stack.certainty) == ("Megatron-Bridge@71e418ea", "not known")
        assert "git submodule update --init --recursive" in stack.revision.settle
        assert Stacks(repository.path).pinned("a.py") == ()

    def test_inside_a_carrier_that_is_checked_out(self, repository: Repository) -> None:
        path = "3rdparty/Megatron-Bridge"
        repository.commit({".gitmodules": self.modules(path, "Megatron-Bridge")})
        self.gitlink(repository, path, "0" * 39 + "1")
        carrier = Repository(repository.path / path)
        carrier.commit({".gitmodules": self.modules("3rdparty/Megatron-LM", "Megatron-LM")})
        self.gitlink(carrier, "3rdparty/Megatron-LM", self.COMMIT)
        assert [stack.name for stack in Stacks(repository.path).all] == ["71e418ea"]
