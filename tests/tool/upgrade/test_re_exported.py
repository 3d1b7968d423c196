"""A class that moved and is re-exported from where it was: a patch of it is one patch on every release."""

from pathlib import Path

from checking import found_in, releases, write_files

from mcore_unpatch.survey.survey import ScanOptions
from mcore_unpatch.upgrade.run import upgrade

SOURCE = """
from megatron.core.ssm.gated_delta_net import GatedDeltaNet

def forward(self, *args, **kwargs):
    return None

GatedDeltaNet.forward = forward
"""
INSIDE = "from megatron.core.ssm.gated_delta_net.gdn import GatedDeltaNet\n"


def test_a_patch_by_the_name_that_both_releases_have_is_called(tmp_path: Path) -> None:
    for release in ((0, 17, 0), (0, 19, 2)):
        (finding,) = found_in(SOURCE, target=release)
        assert "does not exist" not in finding.message
    write_files(tmp_path, SOURCE)
    (fate,) = upgrade([tmp_path], ScanOptions(jobs=1), *releases("0.17.0", "0.19.2")).fates
    assert (fate.urgency, fate.target.kind) == ("harmless", "signature")  # it shares nothing with Megatron's own


def test_an_import_of_the_new_place_fails_where_it_is_not(tmp_path: Path) -> None:
    write_files(tmp_path, INSIDE)
    (use,) = upgrade([tmp_path], ScanOptions(jobs=1), *releases("0.19.2", "0.17.0")).uses.affected
    assert use.exception == "ModuleNotFoundError"


def test_a_module_that_forwards_to_megatron_has_its_names(tmp_path: Path) -> None:
    uses = """\
def build():
    parallel_state.own()
    if parallel_state.is_pipeline_last_stage(True):
        return parallel_state.get_pipeline_model_parallel_split_rank()
"""
    forwarding = """\
from megatron.core import parallel_state as theirs
def own(): pass
def __getattr__(name):
    return getattr({}, name)
"""
    said = []
    for other in ("theirs", "unknown"):
        files = {"pkg/__init__.py": "", "pkg/parallel_state.py": forwarding.format(other)}
        for number, line in enumerate(
            ("from pkg import parallel_state", "import pkg.parallel_state as parallel_state")
        ):
            files[f"pkg/uses{number}.py"] = f"{line}\n{uses}"
        write_files(tmp_path / other, files)
        found = upgrade([tmp_path / other], ScanOptions(jobs=1), *releases("0.12.0", "0.19.2")).uses.affected
        said.append([(one.path.rpartition("/")[2], one.line, one.exception) for one in found])
    assert said == [[("uses0.py", 5, "AttributeError"), ("uses1.py", 5, "AttributeError")], []]
