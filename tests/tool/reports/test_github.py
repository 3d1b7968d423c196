"""GitHub annotations: one command per finding, with everything escaped that a command would take for its own."""

from pathlib import Path

from checking import write_files
from command import FINDINGS, unpatch

from reports.sample import FILES


def lines(folder: Path) -> list[str]:
    write_files(folder, FILES)
    return unpatch("check", "--output-format", "github", cwd=folder).out.splitlines()


def test_one_line_per_finding_and_error(tmp_path: Path) -> None:
    output = lines(tmp_path)
    assert len(output) == 6
    assert all(line.startswith("::error ") for line in output[:5])
    assert output[5].startswith("::notice ::Judged for megatron-core 0.19")


def test_place_and_title(tmp_path: Path) -> None:
    forward = lines(tmp_path)[1]
    assert "file=pkg/patches.py,line=6,endLine=6,col=5,title=MCU101 megatron.core.models.gpt" in forward


def test_messages_are_escaped(tmp_path: Path) -> None:
    forward = lines(tmp_path)[1]
    _, _, message = forward.partition("::")[2].partition("::")
    assert "%0A" in message
    assert "\r" not in message


def test_properties_are_escaped(tmp_path: Path) -> None:
    write_files(tmp_path, {"a,b:c%.py": "from megatron.core import utils\nutils.get_model_config = print\n"})
    result = unpatch("check", "--output-format", "github", cwd=tmp_path)
    assert result.code == FINDINGS
    assert "file=a%2Cb%3Ac%25.py,line=2" in result.out


def test_nothing_to_say(tmp_path: Path) -> None:
    write_files(tmp_path, "x = 1\n")
    assert unpatch("check", "--output-format", "github", cwd=tmp_path).out.strip() == ""


def test_a_generous_baseline_is_a_warning(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.py": "x = 1\n", "known.json": '{"version": 1, "counts": {"a.py": {"MCU601": 1}}}'})
    output = unpatch("check", "--baseline", "known.json", "--output-format", "github", cwd=tmp_path).out
    assert output.startswith("::warning ::")
