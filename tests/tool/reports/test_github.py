"""GitHub annotations: one command per finding, with everything escaped that a command would take for its own."""

from pathlib import Path

from checking import write_files
from command import unpatch

from reports.sample import FILES


def lines(folder: Path) -> list[str]:
    write_files(folder, FILES)
    return unpatch("check", "--output-format", "github", cwd=folder).out.splitlines()


def test_place_and_title(tmp_path: Path) -> None:
    forward = lines(tmp_path)[1]
    assert "file=pkg/patches.py,line=6,endLine=6,col=5,title=MCU101 megatron.core.models.gpt" in forward


def test_a_generous_baseline_is_a_warning(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.py": "x = 1\n", "known.json": '{"version": 1, "counts": {"a.py": {"MCU601": 1}}}'})
    output = unpatch("check", "--baseline", "known.json", "--output-format", "github", cwd=tmp_path).out
    assert output.startswith("::warning ::")
