"""What Dockerfiles, scripts, workflows and submodules install: small trees, one for each way that is seen outside."""

from pathlib import Path

import pytest
from checking import write_files
from command import ERROR, unpatch
from repository import Repository

from mcore_unpatch.stacks.stacks import Stacks

LM = "https://github.com/NVIDIA/Megatron-LM.git"


def found(folder: Path, files: dict[str, str]) -> dict[str, str]:
    """The stacks of a repository by name, and where each is said first."""
    write_files(folder, files)
    return {stack.name: stack.place for stack in Stacks(folder).all}


CLONE_AND_CHECK_OUT = f"""\
FROM x
ARG C=1dcf0dafa884ad52ffb243625717a3471643e087
RUN git clone {LM} --recursive && \\
    cd Megatron-LM && git checkout ${{C}} && pip install -e .
"""
FETCH_AND_CHECK_OUT = f"""\
FROM x
RUN git clone {LM} /opt/src/Megatron-LM \\
  && cd /opt/src/Megatron-LM \\
  && git fetch --depth 1 origin 71e418ea && git checkout FETCH_HEAD
"""
BESIDE_ANOTHER = f"""\
FROM x
RUN cd M && git checkout f2b0977e && cd .. && \\
 git clone --depth 1 --branch core_r0.16.0 {LM}
"""
A_FORK = """\
FROM x
ARG R=radixark/Megatron-LM
ARG B=miles-main
ARG C=""
RUN git clone https://github.com/${R}.git -b ${B} M && cd M && \\
    if [ -n "$C" ]; then git checkout -f ${C}; fi
"""


@pytest.mark.parametrize(
    ("text", "stacks"),
    [
        (f"FROM x\nARG V=core_v0.18.0\nRUN pip install --no-deps git+{LM}@${{V}}\n", {"0.18.0": 3}),
        (f"ARG V=core_v0.18.0\nFROM x AS base\nARG V\nRUN pip install git+{LM}@$V\n", {"0.18.0": 4}),
        (f"FROM x AS base\nENV V=core_v0.17.0\nFROM base\nRUN pip install git+{LM}@${{V}}\n", {"0.17.0": 4}),
        (f"FROM x AS a\nARG V=core_v0.17.0\nFROM y\nARG V=core_v0.16.0\nRUN pip install git+{LM}@$V\n", {"0.16.0": 5}),
        ("FROM x\nRUN pip install a \\\n    b==1 \\\n    megatron-core==0.18.0 \\\n    c\n", {"0.18.0": 4}),
        ("FROM x\nRUN pip install https://x/megatron_core-0.12.2-cp310-cp310-linux_x86_64.whl\n", {"0.12.2": 2}),
        (
            f"FROM x\nRUN git clone {LM} a/b && git -C a/b checkout core_v0.16.1 && cd TE && git checkout v2\n",
            {"0.16.1": 2},
        ),
        (f"FROM x\nRUN git clone {LM}\n", {"main": 2}),
        (BESIDE_ANOTHER, {"core_r0.16.0": 3}),
        (CLONE_AND_CHECK_OUT, {"1dcf0daf": 4}),
        (FETCH_AND_CHECK_OUT, {"71e418ea": 4}),
        (A_FORK, {"radixark/Megatron-LM@miles-main": 5}),
        ("FROM x\n# RUN pip install megatron-core==0.12.0\nRUN echo hi\n", {}),
        ("FROM x\nRUN echo 'needs megatron-core==0.12.0'\n", {}),
    ],
)
def test_a_dockerfile(tmp_path: Path, text: str, stacks: dict[str, int]) -> None:
    assert found(tmp_path, {"Dockerfile": text}) == {name: f"Dockerfile:{line}" for name, line in stacks.items()}


@pytest.mark.parametrize("asked", [f"git+{LM}@${{V}}", "megatron-core==$V", "'megatron_core[dev]==${V}'"])
def test_a_variable_that_nobody_sets_is_said(tmp_path: Path, asked: str) -> None:
    assert found(tmp_path, {"Dockerfile": f"FROM x\nARG V\nRUN pip install {asked}\n"}) == {}
    (note,) = Stacks(tmp_path).found.notes
    assert note == "Dockerfile:3: V has no value here, so which Megatron is installed is not known."


ONE_OF_TWO = f"""\
local b="core_r0.13.0"
[ $new -eq 1 ] && b="core_r0.17.0"
clone_it DIR "$V/Megatron-LM" {LM} -b "$b"
"""
ON_SEVERAL_LINES = f"""\
export C="3714d81d418c9f1bca4594fc35f9e8289f652862"
git clone {LM}
cd $BASE/Megatron-LM && git checkout $C
"""


@pytest.mark.parametrize(
    ("text", "stacks"),
    [
        (ONE_OF_TWO, {"core_r0.13.0", "core_r0.17.0"}),
        (ON_SEVERAL_LINES, {"3714d81d"}),
        (f"V=${{V:-core_v0.16.1}}\npip3 install git+{LM}@$V\n", {"0.16.1"}),
        ("cd /opt/Megatron-LM && git checkout -f some-branch-of-ours\n", set()),
        (f"[ -d M ] || git clone {LM} -b dev && (cd Megatron-LM; git checkout 23e092f4)\n", {"23e092f4"}),
    ],
)
def test_a_script(tmp_path: Path, text: str, stacks: set[str]) -> None:
    assert set(found(tmp_path, {"scripts/install.sh": text})) == stacks


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
        assert result.code == ERROR
        said = " ".join(result.err.split())
        assert "error: The release of abababab (.gitmodules:1) is not known (" in said
        assert said.endswith("pass its source, which is here: --from third_party/Megatron-LM")

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
