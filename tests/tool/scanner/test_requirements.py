"""A file is judged for the release that the nearest project asks for; which one that is, and from where, is said."""

from typing import Any

import pytest
from checking import Source, scan_source

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
NOTHING = "the newest known, no project file names a release"


def judged(files: Source, **options: Any) -> list[tuple[str, str]]:
    """(releases, why) of a repository with one patch."""
    report = scan_source({"patches.py": OLD_POSTPROCESS, **files}, **options)
    assert report.notes == []
    return [(" ".join(one.to_json()["releases"]), one.why) for one in report.judged]


def requires(text: str) -> dict[str, str]:
    return {"pyproject.toml": f"[project]\ndependencies = [{text!r}]\n"}


def uv_source(text: str) -> dict[str, str]:
    return {
        "pyproject.toml": f"[project]\ndependencies = ['megatron-core']\n[tool.uv.sources]\nmegatron-core = {text}\n"
    }


def poetry(text: str) -> dict[str, str]:
    return {"pyproject.toml": f"[tool.poetry.group.train.dependencies]\nmegatron-core = {text}\n"}


@pytest.mark.parametrize(
    ("files", "releases", "why"),
    [
        (requires("megatron-core==0.16.1"), "0.16", "pyproject.toml asks for ==0.16.1"),
        (requires("megatron-core == 0.18.0rc1"), "0.18", "pyproject.toml asks for ==0.18.0rc1"),
        (requires("megatron_core~=0.17.0"), "0.17", "pyproject.toml asks for ~=0.17.0"),
        (requires("megatron-core[dev]>=0.17,<0.18 ; python_version > '3.11'"), "0.17", None),
        (requires("megatron-core>=0.13,<0.17"), "0.13 0.16", "pyproject.toml asks for >=0.13,<0.17"),
        (requires("megatron-core==0.20.1"), "0.20", None),
        (requires("megatron-core >= 0.15"), "0.15 0.19", "pyproject.toml asks for at least 0.15"),
        (requires("megatron-core>=0.19"), "0.19", "pyproject.toml asks for at least 0.19"),
        (requires("megatron-core<0.18"), "0.17", "pyproject.toml asks for below 0.18"),
        (requires("megatron-core!=0.19.*"), "0.18", "pyproject.toml asks for !=0.19.*"),
        (requires("megatron-core!=0.19.0"), "0.19", "pyproject.toml asks for !=0.19.0"),
        (requires("megatron-core>=0.16,!=0.16.*"), "0.17 0.19", None),
        (requires("megatron-core"), "0.19", NOTHING),
        (requires("megatron-core-extras==0.12"), "0.19", NOTHING),
        (requires("megatron-bridge @ git+https://github.com/NVIDIA-NeMo/Megatron-Bridge@v0.4.0"), "0.19", NOTHING),
        (
            requires("megatron-core @ git+https://github.com/NVIDIA/Megatron-LM.git@core_v0.18.0"),
            "0.18",
            "pyproject.toml asks for the tag core_v0.18.0",
        ),
        (requires("megatron-core @ git+https://github.com/me/fork@core_r0.16.0"), "0.16", None),
        (
            uv_source("{ git = 'https://x', tag = 'core_v0.18.0' }"),
            "0.18",
            "pyproject.toml asks for the tag core_v0.18.0",
        ),
        (uv_source("[{ git = 'https://x/y', branch = 'core_r0.17.0', extra = 'a' }]"), "0.17", None),
        (uv_source("{ git = 'https://x', rev = '71e418e' }"), "0.19", "pyproject.toml asks for the git commit 71e418e"),
        (poetry("'^0.17.1'"), "0.17", None),
        (poetry("'~0.16'"), "0.16", None),
        (poetry("'0.16.1'"), "0.16", None),
        (poetry("'*'"), "0.19", NOTHING),
        (poetry("{ version = '>=0.15', optional = true }"), "0.15 0.19", None),
        (poetry("{ git = 'https://x/y', tag = 'core_v0.16.1' }"), "0.16", None),
        ({"pyproject.toml": "[dependency-groups]\ngpu = ['megatron-core==0.17.1']\n"}, "0.17", None),
        ({"pyproject.toml": "[project.optional-dependencies]\ngpu = ['megatron-core==0.17.1']\n"}, "0.17", None),
        ({"pyproject.toml": "[project]\ndescription = 'For megatron-core==0.12'\n"}, "0.19", NOTHING),
        ({"pyproject.toml": "# megatron-core==0.12\n"}, "0.19", NOTHING),
        ({"pyproject.toml": "not toml megatron-core==0.12\n"}, "0.19", NOTHING),
        ({"requirements.txt": "torch\nmegatron-core[dev]==0.17.1  # pinned\n"}, "0.17", None),
        ({"requirements.txt": "# megatron-core==0.1 was bad\nmegatron-core\n"}, "0.19", NOTHING),
        ({"requirements-mcore.txt": "megatron-core<=0.16\n"}, "0.16", "requirements-mcore.txt asks for <=0.16"),
        ({"requirements/gpu.txt": "megatron-core==0.17.1\n"}, "0.17", "requirements/gpu.txt asks for ==0.17.1"),
        ({"requirements.txt": "-e git+https://github.com/NVIDIA/Megatron-LM.git@core_v0.16.0#egg=x\n"}, "0.16", None),
        ({"setup.py": "import x\nx.setup(install_requires=['megatron-core==0.16.1'])\n"}, "0.16", None),
        ({"setup.cfg": "[options]\ninstall_requires =\n    megatron-core==0.16.1\n"}, "0.16", None),
    ],
)
def test_read_from(files: dict[str, str], releases: str, why: str | None) -> None:
    (found,) = judged(files)
    assert found == (releases, why or found[1])


@pytest.mark.parametrize(("release", "names"), [("0.16", ""), ("0.17", "is_spec_decode"), ("0.19", "padding_mask")])
def test_what_breaks_is_told_for_that_release(release: str, names: str) -> None:
    report = scan_source({**requires(f"megatron-core=={release}.0"), "patches.py": OLD_POSTPROCESS})
    assert names in report.findings[0].message
    assert ("padding_mask" in report.findings[0].message) == (release == "0.19")


def test_a_lower_bound_is_judged_for_both_ends() -> None:
    report = scan_source({**requires("megatron-core>=0.17"), "patches.py": OLD_POSTPROCESS})
    message = report.findings[0].message
    assert "TypeError on megatron-core 0.17+" in message
    assert "TypeError on megatron-core 0.18+" in message


def test_of_several_files_the_pin_counts() -> None:
    found = judged({**requires("megatron-core>=0.15"), "requirements-gpu.txt": "megatron-core==0.17.0\n"})
    assert found == [("0.17", "requirements-gpu.txt asks for ==0.17.0")]


def test_two_pins_are_both_judged() -> None:
    found = judged({"requirements-a.txt": "megatron-core==0.16.0\n", "requirements-b.txt": "megatron-core==0.18.0\n"})
    assert found == [("0.16 0.18", "requirements-a.txt asks for ==0.16.0 and requirements-b.txt asks for ==0.18.0")]


@pytest.mark.parametrize("text", [">=0.18,<0.19", ">=0.18,<=0.18.9", ">0.17.99,<0.19", "~=0.18.0", "==0.18.*"])
def test_a_range_of_one_release_is_a_pin(text: str) -> None:
    found = judged({"requirements-a.txt": "megatron-core==0.16.0\n", "requirements-b.txt": f"megatron-core{text}\n"})
    assert [releases for releases, _ in found] == ["0.16 0.18"]


@pytest.mark.parametrize("text", [">=0.19", "<0.13", "!=0.18.0"])
def test_one_bound_is_no_pin(text: str) -> None:
    found = judged({"requirements-a.txt": "megatron-core==0.16.0\n", "requirements-b.txt": f"megatron-core{text}\n"})
    assert [releases for releases, _ in found] == ["0.16"]


def test_the_nearest_project_wins() -> None:
    files = {
        **requires("megatron-core==0.16.0"),
        "sub/pyproject.toml": "[project]\ndependencies = ['megatron-core==0.19.0']\n",
        "sub/src/patches.py": OLD_POSTPROCESS,
        "other/setup.cfg": "[options]\ninstall_requires = torch\n",
        "other/patches.py": OLD_POSTPROCESS,
    }
    report = scan_source({"patches.py": OLD_POSTPROCESS, **files})
    assert {f.path: "padding_mask" in f.message for f in report.findings} == {
        "patches.py": False,
        "other/patches.py": False,
        "sub/src/patches.py": True,
    }
    assert [str(one) for one in report.judged] == [
        "Judged for megatron-core 0.16: pyproject.toml asks for ==0.16.0.",
        "Judged for megatron-core 0.19: sub/pyproject.toml asks for ==0.19.0.",
    ]


def test_the_option_wins() -> None:
    assert judged(requires("megatron-core==0.16"), target=(0, 19)) == [("0.19", "named by --target-mcore")]
