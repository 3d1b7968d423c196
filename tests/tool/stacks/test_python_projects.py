"""Which releases a project asks for, by all the files that Python projects have; which of them a file is judged for."""

from pathlib import Path

import pytest
from checking import Source, scan_source, write_files

from mcore_unpatch.stacks.stacks import Stacks

# A copy of `_postprocess` as it was in 0.16: 0.17 passes `is_spec_decode`, 0.18 also `padding_mask`.
OLD_POSTPROCESS = """\
from megatron.core.models.gpt import GPTModel
def postprocess(self, hidden_states, input_ids, position_ids, labels, rotary_pos_emb, rotary_pos_cos, rotary_pos_sin,
                mtp_in_postprocess=None, loss_mask=None, decoder_input=None, attention_mask=None,
                inference_params=None, packed_seq_params=None, sequence_len_offset=None, runtime_gather_output=None,
                extra_block_kwargs=None, inference_context=None):
    return log_probs(hidden_states)
GPTModel._postprocess = postprocess
"""
LM = "https://github.com/NVIDIA/Megatron-LM"
NEWEST = "0.19", "the newest known, no project file names a release"


def judged(folder: Path, files: Source, path: str = "patches.py") -> tuple[str, str]:
    """The releases that a file of a repository is judged for, and where that is said."""
    write_files(folder, files)
    found = Stacks(folder).of(path)
    return " ".join(found.to_json()["releases"]), found.why


def requires(text: str) -> dict[str, str]:
    return {"pyproject.toml": f"[project]\ndependencies = [{text!r}]\n"}


def uv_source(text: str) -> dict[str, str]:
    dependencies = "[project]\ndependencies = ['megatron-core>=0.12']\n"
    return {"pyproject.toml": f"{dependencies}[tool.uv.sources]\nmegatron-core = {text}\n"}


def poetry(text: str) -> dict[str, str]:
    return {"pyproject.toml": f"[tool.poetry.group.train.dependencies]\nmegatron-core = {text}\n"}


@pytest.mark.parametrize(
    ("files", "releases", "why"),
    [
        (requires("megatron-core==0.16.1"), "0.16.1", "pyproject.toml:2"),
        (requires("megatron-core==0.17.0"), "0.17.0", "pyproject.toml:2"),
        (requires("megatron-core == 0.18.0rc1"), "0.18.0", None),
        (requires("megatron-core == 0.18rc1"), "0.18.0", None),
        (requires("megatron-core==0.18.0.dev0"), "0.17.1 0.18.0", None),
        (requires("megatron-core==0.18.1"), "0.18.0 0.18.2", None),
        (requires("megatron_core~=0.17.0"), "0.17.0 0.17.1", None),
        (requires("megatron-core[dev]>=0.17,<0.18 ; python_version > '3.11'"), "0.17.0 0.17.1", None),
        (requires("megatron-core>=0.13,<0.17"), "0.13.0 0.16.1", None),
        (requires("megatron-core==0.20.1"), "0.20.1", None),
        (requires("megatron-core==0.11.0"), "0.12.0", None),
        (requires("megatron-core >= 0.15"), "0.15.0 0.19.2", None),
        (requires("megatron-core<0.18"), "0.17.1", None),
        (requires("megatron-core!=0.19.*"), "0.18.2", None),
        (requires("megatron-core>=0.16,!=0.16.*"), "0.17.0 0.19.2", None),
        (requires("megatron-core"), *NEWEST),
        (requires("megatron-core-extras==0.12"), *NEWEST),
        (requires("megatron-core @ git+https://github.com/NVIDIA/Megatron-LM.git@core_v0.18.0"), "0.18.0", None),
        (requires("megatron-core @ git+https://github.com/me/fork@core_r0.16.0"), "0.16.1", None),
        (uv_source(f"{{ git = '{LM}', tag = 'core_v0.18.0' }}"), "0.18.0", "pyproject.toml:4"),
        (uv_source("[{ git = 'https://x/y', branch = 'core_r0.17.0', extra = 'a' }]"), "0.17.1", None),
        (uv_source(f"{{ git = '{LM}', rev = '71e418e' }}"), "0.18.0 0.19.0", "pyproject.toml:4"),
        (poetry("'0.16.1'"), "0.16.1", None),
        (poetry("'*'"), *NEWEST),
        (poetry("{ version = '>=0.15', optional = true }"), "0.15.0 0.19.2", None),
        (poetry("{ git = 'https://github.com/NVIDIA/Megatron-LM', tag = 'core_v0.16.1' }"), "0.16.1", None),
        ({"pyproject.toml": "[dependency-groups]\ngpu = ['megatron-core==0.17.1']\n"}, "0.17.1", None),
        ({"pyproject.toml": "[project.optional-dependencies]\ngpu = ['megatron-core==0.17.1']\n"}, "0.17.1", None),
        ({"pyproject.toml": "[tool.uv]\noverride-dependencies = ['megatron-core==0.17.1']\n"}, "0.17.1", None),
        ({"pyproject.toml": "[project]\ndescription = 'For megatron-core==0.12'\n"}, *NEWEST),
        ({"pyproject.toml": "# megatron-core==0.12\n"}, *NEWEST),
        ({"requirements.txt": "torch\nmegatron-core[dev]==0.17.1  # pinned\n"}, "0.17.1", "requirements.txt:2"),
        ({"requirements.txt": "# megatron-core==0.1 was bad\nmegatron-core\n"}, *NEWEST),
        ({"constraints.txt": "megatron-core==0.16.0\n"}, "0.16.0", None),
        ({"requirements/gpu.txt": "megatron-core==0.17.1\n"}, "0.17.1", "requirements/gpu.txt:1"),
        ({"requirements.txt": "-e git+https://github.com/NVIDIA/Megatron-LM.git@core_v0.16.0#egg=x\n"}, "0.16.0", None),
        ({"setup.py": "import x\nx.setup(install_requires=['megatron-core==0.16.1'])\n"}, "0.16.1", "setup.py:2"),
        ({"setup.cfg": "[options]\ninstall_requires =\n    megatron-core==0.16.1\n"}, "0.16.1", None),
        ({"environment.yml": "dependencies:\n  - pip:\n    - megatron-core==0.12.1\n"}, "0.12.1", "environment.yml:3"),
        (
            {"uv.lock": '[[package]]\nname = "megatron-core"\nversion = "0.19.0+71e418ea7"\nsource = { git = '
             '"https://github.com/NVIDIA/Megatron-LM?rev=71e418ea#71e418ea7d7b3a6c9a53238c543c3e0b43e11026" }\n'},
            "0.18.0 0.19.0",
            "uv.lock:2",
        ),
        ({"requirements.txt": "megatron-core==0.18.0+0123456\n"}, "0.18.0", None),
        ({"uv.lock": 'name = "megatron-core"\nversion = "0.18.0"\nrequires-dist = ["torch"]\n'}, *NEWEST),
        ({"poetry.lock": '[[package]]\nname = "megatron-core"\nversion = "0.16.0"\noptional = true\n'}, "0.16.0", None),
        ({"poetry.lock": '[[package]]\nname = "megatron-core-x"\nversion = "0.16.0"\n'}, *NEWEST),
        ({"Pipfile.lock": '{"default": {\n  "megatron-core": {\n   "version": "==0.17.0"\n  }\n}}\n'}, "0.17.0", None),
    ],
)  # fmt: skip
def test_read_from(tmp_path: Path, files: dict[str, str], releases: str, why: str | None) -> None:
    found = judged(tmp_path, files)
    assert found == (releases, why or found[1])


@pytest.mark.parametrize(("release", "names"), [("0.16", ""), ("0.17", "is_spec_decode"), ("0.19", "padding_mask")])
def test_what_breaks_is_told_for_that_release(release: str, names: str) -> None:
    report = scan_source({**requires(f"megatron-core=={release}.0"), "patches.py": OLD_POSTPROCESS})
    assert names in report.findings[0].message
    assert ("padding_mask" in report.findings[0].message) == (release == "0.19")


def test_of_several_files_the_pin_counts(tmp_path: Path) -> None:
    files = {**requires("megatron-core>=0.15"), "requirements-gpu.txt": "megatron-core==0.17.0\n"}
    assert judged(tmp_path, files) == ("0.17.0", "requirements-gpu.txt:1")


def test_two_pins_are_both_judged(tmp_path: Path) -> None:
    files = {"requirements-a.txt": "megatron-core==0.16.0\n", "requirements-b.txt": "megatron-core==0.18.0\n"}
    assert judged(tmp_path, files) == ("0.16.0 0.18.0", "requirements-b.txt:1 and requirements-a.txt:1")


def test_the_pin_of_an_extra_leaves_the_range_beside_it(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": "[project]\ndependencies = ['megatron-core>=0.15,<0.17']\n"
        "[project.optional-dependencies]\nnew = ['megatron-core==0.18.0']\n"
    }
    assert judged(tmp_path, files)[0] == "0.15.0 0.16.1 0.18.0"


@pytest.mark.parametrize("text", [">=0.18,<0.19", ">=0.18,<=0.18.9", "~=0.18.0", "==0.18.*"])
def test_a_range_of_one_minor_release_is_a_pin(tmp_path: Path, text: str) -> None:
    files = {"requirements-a.txt": "megatron-core==0.16.0\n", "requirements-b.txt": f"megatron-core{text}\n"}
    assert judged(tmp_path, files)[0] == "0.16.0 0.18.0 0.18.2"


@pytest.mark.parametrize("text", [">=0.19", "<0.13", "!=0.18.0"])
def test_one_bound_is_no_pin(tmp_path: Path, text: str) -> None:
    files = {"requirements-a.txt": "megatron-core==0.16.0\n", "requirements-b.txt": f"megatron-core{text}\n"}
    assert judged(tmp_path, files)[0] == "0.16.0"


def test_the_nearest_project_wins_and_images_are_for_all_below_them(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            **requires("megatron-core==0.16.0"),
            "sub/pyproject.toml": "[project]\ndependencies = ['megatron-core==0.19.0']\n",
            "sub/docker/Dockerfile": "FROM x\nRUN pip install megatron-core==0.18.0\n",
            "docker/Dockerfile": "FROM x\nRUN pip install megatron-core==0.17.0\n",
            "other/setup.cfg": "[options]\ninstall_requires = torch\n",
        },
    )
    found = {
        path: " ".join(Stacks(tmp_path).of(path).to_json()["releases"]) for path in ("a.py", "other/a.py", "sub/a.py")
    }
    assert found == {"a.py": "0.16.0 0.17.0", "other/a.py": "0.16.0 0.17.0", "sub/a.py": "0.17.0 0.18.0 0.19.0"}


def test_a_requirement_of_an_example_is_for_that_example(tmp_path: Path) -> None:
    files = {"examples/a/environment.yml": "- megatron-core==0.12.1\n", "examples/a/train.py": "", "b.py": ""}
    other = f"{NEWEST[1]} for it; examples/a/environment.yml:1 names one for its own folder"
    assert judged(tmp_path, files, "b.py") == (NEWEST[0], other)
    assert judged(tmp_path, files, "examples/a/train.py")[0] == "0.12.1"


def test_megatron_that_is_carried_along(tmp_path: Path) -> None:
    files = {"third/megatron/core/package_info.py": "MAJOR = 0\nMINOR = 15\nPATCH = 3\n", **requires("torch")}
    assert judged(tmp_path, files) == ("0.15.3", "third/megatron/core/package_info.py:1")


@pytest.mark.parametrize("version", ["^0.17.1", "~0.16"])
def test_a_version_in_another_form_is_not_known(tmp_path: Path, version: str) -> None:
    write_files(tmp_path, {**poetry(f"'{version}'"), "a.py": ""})
    assert f"the release of {version} (pyproject.toml" in Stacks(tmp_path).unsure("a.py")


def test_what_a_folder_of_the_repository_asks_for_that_is_installed_with_it(tmp_path: Path) -> None:
    files = {"requirements.txt": "torch\n-e ./adapter\n./other\n", "setup.py": "", "a.py": "", "other/setup.py": ""}
    adapter = {"adapter/pyproject.toml": "[project]\ndependencies = ['megatron-core==0.16.1']\n"}
    assert judged(tmp_path, {**files, **adapter}, "a.py") == ("0.16.1", "adapter/pyproject.toml:2")


@pytest.mark.parametrize(
    "name", ["docs/build_dockerfile_page.rst", "docs/Dockerfile.md", "README.rst", "docs/en/Quick-start.md"]
)
def test_what_documentation_says_is_a_hint(tmp_path: Path, name: str) -> None:
    write_files(tmp_path, {name: "RUN pip install megatron-core==0.12.0\n", "a.py": ""})
    stacks = Stacks(tmp_path)
    assert not stacks.all
    assert [one.name for one in stacks.hints] == ["0.12.0"]
