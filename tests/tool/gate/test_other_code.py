"""Which files with code that is no Python file are named, by each of the names and contents that they may have."""

import pytest

from mcore_unpatch.scanner.sources.parsing import Unreadable
from mcore_unpatch.survey.other_code import not_read

PATCH = b"from megatron.core.models.gpt.gpt_model import GPTModel\nGPTModel.forward = ours\n"
NAMES = {
    **dict.fromkeys(["a.ipynb", "a.ipy", "a.pth", "a.py3", "a.pyx", "a.sh", "a.bash", "a.yml", "a.yaml", "a.mk"], True),
    **dict.fromkeys(["a.jinja", "a.j2", "a.in", "A.SH", "launch", "bin/run", "Dockerfile.cuda", "makefile.am"], True),
    **dict.fromkeys(["Justfile.mod", "x/dockerfile.rocm"], True),
    **dict.fromkeys(["a.txt", "a.md", "a.c", "dockerfiles/a.txt", "a.py.orig"], False),
}
CONTENTS = {
    PATCH: True,
    PATCH.replace(b"from ", b"from  ", 1): True,
    PATCH.replace(b"GPTModel.forward =", b"forward ="): False,
    b"a.b = c\n": False,
    PATCH.replace(b"from megatron.core", b"from elsewhere") + b"# megatron": False,
    b"sed -i s/a/b/ /opt/megatron/core/utils.py": True,
    b"perl -pi /opt/megatron/core/utils.py": True,
    b"cp a.py /opt/megatron/training/training.py": True,
    b"COPY a.py megatron/core/utils.py": True,
    b"ADD a.py megatron/core/utils.py": True,
    b"rsync a/ $M/megatron/core/": True,
    b"rsync a/ $M/megatron/training; ls": True,
    b"cp -r a/ $M/megatron/core/": False,
    b"cat /opt/megatron/core/utils.py": False,
    b"sed -i s/a/b/ /opt/megatron/data/utils.py": False,
}


def said(name: str, data: bytes | Exception) -> bool:
    def read(path: str) -> bytes:
        assert path == name
        if isinstance(data, Exception):
            raise data
        return data

    told = not_read([name], read)
    assert told in ("", f"Not read, though code in them may patch Megatron: {name}.")
    return bool(told)


def test_names() -> None:
    assert {name: said(name, PATCH) for name in NAMES} == NAMES


def test_contents() -> None:
    assert {data: said("a.sh", data) for data in CONTENTS} == CONTENTS


def test_notebooks_and_compiled_files() -> None:
    assert said("a.ipynb", b'"import os\\n' + PATCH.replace(b"\n", rb"\n") + b'"')
    assert not said("a.sh", b'"import os\\n' + PATCH.replace(b"\n", rb"\n") + b'"')
    assert said("a.pyc", b"\0megatron.core\0")
    assert not said("__pycache__/a.cpython-312.pyc", b"\0megatron.core\0")
    assert not said("a.pyc", b"\0megatron\0")
    assert not said("a.pyc", b"\0")


@pytest.mark.parametrize("error", [FileNotFoundError("gone"), PermissionError("no"), Unreadable("a link")], ids=repr)
def test_what_cannot_be_read_is_not_named(error: Exception) -> None:
    assert not said("a.sh", error)


def test_three_are_named() -> None:
    assert not_read(["a.sh", "b.sh", "c.txt", "d.sh"], lambda _: PATCH).endswith(": a.sh, b.sh, d.sh.")
    assert not_read(["a.sh", "b.sh", "c.sh", "d.sh", "e.sh"], lambda _: PATCH).endswith(
        ": a.sh, b.sh, c.sh and 2 more."
    )
