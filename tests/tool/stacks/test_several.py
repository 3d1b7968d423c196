"""Several Megatrons at once: a finding says where it breaks, an edit is made only where all of them allow it."""

import json
from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, ERROR, Result, unpatch
from stacks.test_python_projects import OLD_POSTPROCESS

from mcore_unpatch.stacks.revision import Judged, Revision, Stack

CALLER = "from verl.models.mcore.mtp_patch import patch_postprocess\n"
CUDA = {"pyproject.toml": "[project]\nname = 'x'\ndependencies = ['megatron-core==0.18.0']\n"}
NPU = {"docker/ascend/Dockerfile": "FROM x\nRUN git clone -b core_r0.16.0 https://github.com/NVIDIA/Megatron-LM.git\n"}
FORK = {"Dockerfile": "FROM x\nRUN git clone -b ours https://github.com/we/Megatron-LM.git\n"}
# What 0.13 and later do not run, as veRL has it.
DEAD = """\
import megatron.core
from packaging import version
from megatron.core.models.gpt import GPTModel


def ours(self):
    return 1


if version.parse(megatron.core.__version__) < version.parse("0.13"):
    GPTModel.forward = ours
"""

# What SkyRL needs on the commit that it pins: 0.19.0 hands the number on by itself, 0.18.0 does not.
LAYER_NUMBER = """\
from megatron.core.transformer.moe.router import TopKRouter
original = TopKRouter.set_layer_number
def numbered(self, layer_number):
    original(self, layer_number)
    if self.router_replay is not None:
        self.router_replay.layer_number = layer_number
TopKRouter.set_layer_number = numbered
"""


@pytest.fixture
def top(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    write_files(folder, {**CUDA, **NPU, "caller.py": CALLER})
    return folder


def migrate(top: Path, *options: str) -> Result:
    return unpatch("migrate", "--allow-no-vcs", "--jobs=1", *options, cwd=top)


def said(result: Result) -> str:
    return " ".join((result.out + result.err).split())


class TestMigrate:
    """As on veRL: the shim would end in an ImportError on the Megatron that the NPU images install."""

    def test_a_range_that_allows_older_ones_leads_nowhere(self, top: Path) -> None:
        allowed = CUDA["pyproject.toml"].replace("==0.18.0", ">=0.15,<0.19")
        write_files(top, {"pyproject.toml": allowed})
        assert "leaves that one out" not in said(migrate(top))

    @pytest.mark.parametrize("stack", ["0.18.0", "pyproject.toml"])
    def test_one_stack_by_name_or_by_file(self, top: Path, stack: str) -> None:
        assert migrate(top, "--stack", stack).code == CLEAN
        assert "mcore_unpatch.compat.verl" in (top / "caller.py").read_text()

    def test_the_configuration_states_them(self, top: Path) -> None:
        write_files(top, {"pyproject.toml": '[tool.unpatch]\nmegatron = ["0.18.0", "0.19"]\n'})
        assert migrate(top).code == CLEAN
        assert "mcore_unpatch.compat.verl" in (top / "caller.py").read_text()

    def test_a_fork_is_not_taken_for_the_newest(self, tmp_path: Path) -> None:
        write_files(tmp_path, {**FORK, "caller.py": CALLER})
        result = migrate(tmp_path)
        text = (tmp_path / "caller.py").read_text()
        assert result.code == CLEAN
        assert "except ImportError:\n    from verl.models.mcore.mtp_patch import patch_postprocess\n" in text

    @pytest.mark.parametrize(
        ("files", "goes"),
        [
            (CUDA, True),
            ({**CUDA, **NPU}, True),
            ({**CUDA, "install.sh": "pip install megatron-core==0.12.1\n"}, False),
            ({**CUDA, **FORK}, False),
            ({**CUDA, "Dockerfile": "FROM x\nARG V\nRUN pip install megatron-core==$V\n"}, False),
        ],
        ids=["0.18.0", "and 0.16", "and 0.12.1", "and a fork", "and one that is not known"],
    )
    def test_what_never_runs_goes_only_if_it_runs_on_no_stack(
        self, tmp_path: Path, files: dict[str, str], goes: bool
    ) -> None:
        write_files(tmp_path, {**files, "a.py": DEAD})
        [finding] = json.loads(unpatch("scan", "--output-format=json", cwd=tmp_path).out)["findings"]
        assert (finding["verdict"] == "delete") == goes
        assert migrate(tmp_path).code == CLEAN
        assert ((tmp_path / "a.py").read_text() != DEAD) == goes


class TestScan:
    """One line where the stacks agree, one for each that differs."""

    def test_pages_and_services_are_told_too(self, top: Path) -> None:
        write_files(top, {"patches.py": OLD_POSTPROCESS})
        sarif = unpatch("scan", "--jobs=1", "--output-format=sarif", cwd=top).json["runs"][0]["results"]
        (result,) = (
            one for one in sarif if one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "patches.py"
        )
        assert ". On 0.18.0: breaks, so " in result["message"]["text"]
        assert len(result["properties"]["stacks"]) == 2
        assert "On core_r0.16.0: " in unpatch("scan", "--jobs=1", "--output-format=html", cwd=top).out

    def test_of_a_commit_it_depends_where_its_neighbours_differ(self, tmp_path: Path) -> None:
        pin = {"requirements.txt": "git+https://github.com/NVIDIA/Megatron-LM@71e418ea\n"}
        write_files(tmp_path, {**pin, "a.py": LAYER_NUMBER})
        (finding,) = unpatch("scan", "--output-format=json", cwd=tmp_path).json["findings"]
        assert finding["verdict"] == "keep"  # 0.18.0 needs it, 0.19.0 does not
        (one,) = finding["stacks"]
        assert one["outcome"].startswith("depends on the commit: on 0.18.0 it runs (keep), on 0.19.0 it runs (delete)")
        assert "CLONE@COMMIT" in one["outcome"]


class TestUpgrade:
    """Never a release with itself, and from every stack."""

    def test_from_each_stack(self, top: Path) -> None:
        write_files(top, {"a.py": OLD_POSTPROCESS})
        data = unpatch("upgrade", "--to=0.18.2", "--output-format=json", "a.py", cwd=top).json
        assert data["steps"] == [{"from": "0.16.1", "to": "0.18.2"}, {"from": "0.18.0", "to": "0.18.2"}]
        assert data["counts"]["breaks"] == 1

    @pytest.mark.parametrize(
        "options", [("--from=0.19.2",), ("--from=0.19", "--to=0.19.2"), ("--from=core_v0.16.1", "--to=0.16.1")]
    )
    def test_a_release_with_itself_is_refused(self, tmp_path: Path, options: tuple[str, ...]) -> None:
        result = unpatch("upgrade", *options, cwd=tmp_path)
        assert result.code == ERROR
        assert "there is nothing to compare" in said(result)

    def test_of_a_repository_that_is_up_to_date(self, tmp_path: Path) -> None:
        write_files(tmp_path, {"requirements.txt": "megatron-core==0.19.2\n"})
        result = unpatch("upgrade", cwd=tmp_path)
        assert result.code == ERROR
        assert "0.19.2 is what the repository runs" in said(result)


@pytest.mark.parametrize("option", [("scan", "--target-mcore"), ("migrate", "--target-mcore"), ("upgrade", "--to")])
@pytest.mark.parametrize("name", ["0.99", "0.18.1", "nonsense", "deadbeef1"])
def test_what_is_no_megatron_is_refused_with_the_known_ones(tmp_path: Path, option: tuple[str, str], name: str) -> None:
    result = unpatch(option[0], option[1], name, cwd=tmp_path)
    assert (result.code, result.out) == (ERROR, "")
    assert "0.12.0 to 0.19.2" in result.err or "CLONE@deadbeef1" in result.err


class TestTheList:
    """`unpatch stacks`."""

    def test_a_stack_by_its_release(self, top: Path) -> None:
        result = unpatch("stacks", "--stack=0.16", "--output-format=json", cwd=top)
        assert result.json["judged"] == ["core_r0.16.0"]

    def test_a_stack_that_is_none(self, top: Path) -> None:
        result = unpatch("stacks", "--stack=0.17", cwd=top)
        assert result.code == ERROR
        assert "No stack goes by 0.17; the repository has: 0.18.0, core_r0.16.0." in result.err


class TestBadInput:
    """Said, never fatal."""

    @pytest.mark.parametrize(
        ("name", "text", "note"),
        [
            ("pyproject.toml", "megatron-core = = 1\n", "pyproject.toml cannot be read: "),
            ("sub/pyproject.toml", "a = " + "[" * 9000 + " # megatron-core", "sub/pyproject.toml cannot be read"),
            (".github/workflows/a.yml", "a: [b\n  - run: pip install megatron-core==${{ x }}\n", None),
            ("Dockerfile", "FROM\nARG\nENV\nRUN git clone -b\nFROM a b c Megatron-LM clone\n\\\n", None),
            ("uv.lock", 'name = "megatron-core"\n' * 3, None),
            (
                "install.sh",
                "cd\ngit checkout\ngit -C\ncd Megatron-LM; git checkout\npip install megatron-core==\\\n",
                None,
            ),
            (
                ".gitmodules",
                '[submodule "a"]\nurl = x\npath\n[submodule "Megatron-LM"]\npath = -x\nurl = a/Megatron-LM\n',
                None,
            ),
        ],
    )
    def test_a_file_that_cannot_be_read(self, tmp_path: Path, name: str, text: str, note: str | None) -> None:
        write_files(tmp_path, {name: text, "requirements.txt": "megatron-core==0.17.0\n"})
        result = unpatch("stacks", "--output-format=json", "--stack=0.17.0", cwd=tmp_path / ".")
        if name == "pyproject.toml":  # which is the configuration too
            assert result.code == ERROR
            return
        assert result.json["judged"] == ["0.17.0"]
        assert note is None or any(one.startswith(note) for one in result.json["notes"])

    @pytest.mark.slow
    def test_a_lock_file_of_10_megabytes(self, tmp_path: Path) -> None:
        package = (
            '[[package]]\nname = "p"\nversion = "1"\ndependencies = [\n' + '    { name = "megatron-x" },\n' * 20 + "]\n"
        )
        lock = package * 17_000 + '[[package]]\nname = "megatron-core"\nversion = "0.17.0"\n'
        (tmp_path / "uv.lock").write_text(lock)
        assert len(lock) > 10_000_000
        assert unpatch("stacks", "--output-format=json", cwd=tmp_path).json["judged"] == ["0.17.0"]


PLAIN = (
    "from megatron.core.models.gpt import GPTModel\n\n\ndef ours(self):\n    return 1\n\n\nGPTModel.forward = ours\n"
)
INFO = "MAJOR = 0\nMINOR = 12\nPATCH = 0\nPRE_RELEASE = ''\n"
NESTED = {"recipes/one/pyproject.toml": "[project]\nname = 'one'\ndependencies = ['megatron-core==0.18.2']\n"}
VENDORED = {
    "vendor/megatron/core/package_info.py": INFO,
    "vendor/megatron/core/__init__.py": "",
    "vendor/pyproject.toml": "[project]\nname = 'megatron-core'\n",
}


def test_what_a_vendored_megatron_says_all_commands_go_by(tmp_path: Path) -> None:
    write_files(tmp_path, {**VENDORED, "tool.py": PLAIN})
    for command in ("stacks", "scan"):
        assert f"Judged for megatron-core 0.12.0: {next(iter(VENDORED))}" in said(unpatch(command, cwd=tmp_path))
    assert "From megatron-core 0.12.0 to 0.19.2" in said(unpatch("upgrade", cwd=tmp_path))


def test_what_a_nested_project_says_is_denied_by_no_command(tmp_path: Path) -> None:
    write_files(tmp_path, {**NESTED, "tool.py": PLAIN})
    assert "recipes/one/pyproject.toml:3 names one for its own folder" in said(unpatch("scan", cwd=tmp_path))
    assert "From megatron-core 0.18.2 to 0.19.2" in said(unpatch("upgrade", cwd=tmp_path))


def test_a_submodule_that_is_no_megatron_says_nothing(tmp_path: Path) -> None:
    module = '[submodule "a"]\n\tpath = a/energon\n\turl = https://x.org/we/Other.git\n\tbranch = core_v0.15.0\n'
    write_files(tmp_path, {".gitmodules": module, "tool.py": PLAIN})
    assert "no project file names a release" in said(unpatch("stacks", cwd=tmp_path))


@pytest.mark.parametrize(("number", "rest"), [(2, ""), (4, ""), (5, " and 1 more"), (7, " and 3 more")])
def test_the_line_names_four_and_counts_the_others(number: int, rest: str) -> None:
    stacks = [Stack(Revision(f"0.1{at}.0", ((0, 10 + at),)), why=f"{at}.txt") for at in range(number)]
    shown = ", ".join(f"0.1{at}.0 ({at}.txt)" for at in range(min(number, 4)))
    assert (
        str(Judged(tuple(stacks)))
        == f"Judged for megatron-core {shown}{rest and rest + ', which `unpatch stacks` lists'}."
    )


@pytest.mark.parametrize(
    ("runs", "may"),
    [(["0.12.0"], False), (["0.8.0"], True), (["0.8.0", "0.12.0"], False), (["0.8.0", "0.18.0"], False)],
)
def test_what_breaks_where_a_release_speaks_for_an_older_one_may_break(
    runs: list[str], may: bool, tmp_path: Path
) -> None:
    patch = "from megatron.core.models.T5 import T5Model\ndef ours(self, ids): ...\nT5Model.forward = ours\n"
    files = {f"docker/{version}/requirements.txt": f"megatron-core=={version}\n" for version in runs}
    write_files(tmp_path, {**files, "a.py": patch})
    report = unpatch("scan", "--output-format", "json", cwd=tmp_path).json
    [finding], [judged] = report["findings"], report["judged"]
    assert "TypeError on megatron-core" in finding["message"]
    assert ("what runs here is older than 0.12.0, and may do so or not" in finding["message"]) == may
    assert ("older than 0.12.0, the oldest known, judged as 0.12.0" in judged["why"]) == ("0.8.0" in runs)


@pytest.mark.parametrize(("known", "may"), [({}, True), (CUDA, False)])
def test_what_breaks_where_nobody_knows_what_runs_may_break(known: dict[str, str], may: bool, tmp_path: Path) -> None:
    patch = "from megatron.core.models.T5 import T5Model\ndef ours(self, ids): ...\nT5Model.forward = ours\n"
    write_files(tmp_path, {**FORK, **known, "a.py": patch})
    [finding] = unpatch("scan", "--output-format", "json", cwd=tmp_path).json["findings"]
    assert "TypeError on megatron-core" in finding["message"]
    runs = "what runs here is we/Megatron-LM@ours, which is not known, and may do so or not"
    assert (runs in finding["message"]) == may
