"""What the new code needs, against what the repository says: the old side stays for every Megatron."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import Result, unpatch

CALLER = b"from verl.models.mcore.mtp_patch import patch_postprocess\n"


def migrate(folder: Path, *options: str) -> Result:
    return unpatch("migrate", "--allow-no-vcs", *options, cwd=folder)


def repository(above: Path, **files: str) -> Path:
    folder = above / "repository"
    folder.mkdir()
    (folder / "caller.py").write_bytes(CALLER)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)
    return folder


@pytest.mark.parametrize("pin", ["megatron-core==0.17.1", "megatron-core==0.18.2", "megatron-core>=0.15", "torch"])
def test_every_pin_is_written_and_the_old_side_stays(tmp_path: Path, pin: str) -> None:
    top = repository(tmp_path, requirements_txt=f"{pin}\n")
    done = migrate(top)
    assert done.code == 0
    written = (top / "caller.py").read_bytes()
    assert b"mcore_unpatch.compat.verl" in written
    assert b"from verl" in written
    assert migrate(top).code == 0
    assert (top / "caller.py").read_bytes() == written
