"""A Megatron that is part of the repository: nobody takes it for its release without a word."""

from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, unpatch, unpatch_forked

USER = "from megatron.core.utils import swapped\nswapped(1, 2)\n"
FIELDS = "MAJOR = 0\nMINOR = 16\nPATCH = 0\nPRE_RELEASE = ''\n"


@pytest.fixture(params=["", "third_party/Megatron-LM/"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    copy = f"{request.param}megatron/core"
    texts = {f"{copy}/package_info.py": FIELDS, f"{copy}/__init__.py": "", "train.py": USER}
    write_files(tmp_path, {**texts, f"{copy}/utils.py": "def swapped(a, b): return a\n"})
    return request.param.rstrip("/") or "."


def test_the_copy_is_named_with_the_option_that_reads_it(folder: str, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("megatron-core==0.17.0\n")  # another may run: nobody chooses the copy
    for arguments in (("upgrade", "--to", "0.19.2"), ("upgrade", "--from", "0.17.0", "--to", "0.19.2")):
        done = unpatch(*arguments, cwd=tmp_path)
        assert done.code == CLEAN
        assert f"`--from {folder}` reads it as it is" in " ".join(done.err.split())
    done = unpatch("scan", cwd=tmp_path)
    assert f"`--target-mcore {folder}` reads it as it is" in " ".join(done.err.split())


def test_the_only_megatron_there_is_compared_as_it_is(folder: str, tmp_path: Path) -> None:
    done = unpatch("upgrade", "--to", "0.19.2", cwd=tmp_path)
    assert "`utils.swapped`" in done.out
    copy = Path(folder, "megatron/core").as_posix()
    assert done.err == f"note: The megatron.core in {copy} is compared as it is.\n"
    (tmp_path / copy / "package_info.py").write_text(FIELDS.replace("16", "19").replace("0\nPRE", "2\nPRE"))
    assert "0.19.2 is what the repository runs" in " ".join(unpatch("upgrade", cwd=tmp_path).err.split())


def test_nothing_is_said_where_the_copy_is_read_or_there_is_none(folder: str, tmp_path: Path) -> None:
    done = unpatch("upgrade", "--from", folder, "--to", "0.19.2", cwd=tmp_path)
    assert done.code == CLEAN
    assert "of its own" not in done.err
    assert "`utils.swapped`" in done.out
    assert "of its own" not in unpatch_forked("scan", "--target-mcore", folder, cwd=tmp_path).err
    (tmp_path / "other").mkdir()
    (tmp_path / "other/a.py").write_text(USER)
    assert "of its own" not in unpatch("scan", cwd=tmp_path / "other").err
