"""Lines that a newer release breaks, rewritten by `upgrade --write`."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import CLEAN, unpatch
from forms import check_forms
from repository import Repository

from mcore_unpatch.upgrade import sources

OLD = """
from enum import Enum

class Kind(Enum):
    causal = 1
    plain = 2

class Worker: ...

def work(size, group=None):
    return size, group

def rest(size, unused=0, used=0):
    return size, used
"""
NEW = """
from enum import Enum

class Kind(Enum):
    masked = 1
    plain = 2

def work(size, pg=None):
    return size, pg

def rest(size):
    return size
"""
BEFORE = """\
from megatron.core.work import Kind, Worker as W, rest, work
from megatron.core.work import (
    Kind as K,  # by its letter
    Worker,
)


def run(**more):
    from megatron.core.work import Worker
    work(1, group=None)
    rest(1, unused=2)
    rest(
        size=1,
        unused=3,
        **more,
    )
    rest(1, used=4)
    return Kind.causal, W, K.plain, Worker
"""
AFTER = """\
from megatron.core.work import Kind, rest, work
from megatron.core.staff import Worker as W
from megatron.core.work import (
    Kind as K,  # by its letter
)
from megatron.core.staff import Worker


def run(**more):
    from megatron.core.staff import Worker
    work(1, pg=None)
    rest(1)
    rest(
        size=1,
        **more,
    )
    rest(1, used=4)
    return Kind.masked, W, K.plain, Worker
"""


SEVERAL = """\
from megatron.core.work import Worker, Foreman, Kind
from megatron.core.work import (
    Foreman,
    Worker,
)
from megatron.core.work import (
    Clerk,
    Kind as K,
    Worker,
)
"""
MOVED = """\
from megatron.core.work import Kind
from megatron.core.staff import Worker, Foreman
from megatron.core.staff import (
    Foreman,
    Worker,
)
from megatron.core.work import Kind as K
from megatron.core.office import Clerk
from megatron.core.staff import Worker
"""


def source(folder: Path, minor: int, **modules: str) -> Path:
    files = {"package_info": f"MAJOR = 0\nMINOR = {minor}\nPATCH = 0\n", "__init__": ""} | modules
    (folder / "megatron" / "core").mkdir(parents=True)
    for name, text in files.items():
        (folder / "megatron" / "core" / f"{name}.py").write_text(text)
    return folder


def test_what_has_one_way_to_be_written_is_and_undo_reverts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    old = source(tmp_path / "old", 50, work=OLD)
    new = source(tmp_path / "new", 51, work=NEW, staff="class Worker: ...\n")
    repository = Repository(tmp_path / "repository")
    repository.commit({"a.py": BEFORE})
    file = repository.path / "a.py"
    result = unpatch("upgrade", "--from", old, "--to", new, "--write", cwd=repository.path)
    assert result.code == CLEAN
    assert file.read_text() == AFTER
    said = " ".join(result.err.split())
    assert "Mended 7 lines. `unpatch undo` reverts it." in said
    assert "Not mended: a.py:17: whether `used` had an effect is for you to say." in said
    left = unpatch("upgrade", "--from", old, "--to", new, "--output-format", "json", cwd=repository.path)
    assert [use["line"] for use in left.json["uses"]] == [17]
    assert unpatch("undo", cwd=repository.path).code == CLEAN
    assert file.read_text() == BEFORE


def test_names_that_moved_together_stay_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    old = source(tmp_path / "old", 50, work=f"{OLD}\nclass Foreman: ...\nclass Clerk: ...\n")
    staff = "class Worker: ...\nclass Foreman: ...\n"
    new = source(
        tmp_path / "new", 51, work=OLD.replace("class Worker: ...", ""), staff=staff, office="class Clerk: ...\n"
    )
    repository = Repository(tmp_path / "repository")
    repository.commit({"a.py": SEVERAL, "windows.py": SEVERAL.replace("\n", "\r\n")})
    result = unpatch("upgrade", "--from", old, "--to", new, "--write", cwd=repository.path)
    assert "Mended 6 lines." in result.err
    assert (repository.path / "a.py").read_text() == MOVED
    assert (repository.path / "windows.py").read_bytes() == MOVED.replace("\n", "\r\n").encode()


READ = """\
from megatron.core import work


def run(Clerk):
    work.serve(1)
    return work.Worker, work.Foreman, work.Clerk
"""


def test_what_is_read_from_a_module_is_imported_from_where_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    people = "class Worker: ...\nclass Foreman: ...\nclass Clerk: ...\n"
    old = source(tmp_path / "old", 50, work=f"{people}def serve(one): ...\n")
    new = source(tmp_path / "new", 51, work="", staff=f"{people}class Desk:\n    def serve(self, one): ...\n")
    repository = Repository(tmp_path / "repository")
    repository.commit({"a.py": READ})
    seen = " ".join(unpatch("upgrade", "--from", old, "--to", new, cwd=repository.path).out.split())
    assert "it is a method now: `Desk.serve`" in seen
    result = unpatch("upgrade", "--from", old, "--to", new, "--write", cwd=repository.path)
    assert (repository.path / "a.py").read_text() == READ.replace(
        "import work\n",
        "import work\nfrom megatron.core.staff import Foreman\nfrom megatron.core.staff import Worker\n",
    ).replace("work.Worker, work.Foreman", "Worker, Foreman")
    assert "the file has another `Clerk`" in " ".join(result.err.split())


FORMS = Path(__file__).with_name("mend.txt")
OF_FORMS_OLD = {
    "work": """
from enum import Enum
class Kind(Enum):
    causal = 1
    plain = 2
    twice = 3
    gone = 4
class Plain:
    causal = 1
class Worker: ...
class Foreman: ...
class Lost: ...
class Tool:
    def use(self, size, group=None): return size, group
def place(size, group=None): return size, group
def other_default(size, group=None): return size, group
def now_required(size, group=None): return size, group
def other_place(size, group=None, last=0): return size, group, last
def two_gone(size, group=None, more=0): return size, group, more
def two_new(size, group=None): return size, group
def unread(size, unused=0): return size
def read(size, used=0): return size, used
def by_locals(size, unused=0): return locals()
def grows(size): return size
def any_word(size, group=None): return size, group
def moved(x): return x
""",
    "rest": "def kept(x): return x\n",
}
OF_FORMS_NEW = {
    "work": """
from enum import Enum
class Kind(Enum):
    masked = 1
    plain = 2
    two = 3
    three = 3
class Plain:
    masked = 1
class Tool:
    def use(self, size, pg=None): return size, pg
def place(size, pg=None): return size, pg
def other_default(size, pg=0): return size, pg
def now_required(size, pg): return size, pg
def other_place(size, last=0, pg=None): return size, pg, last
def two_gone(size, pg=None): return size, pg
def two_new(size, pg=None, cp=None): return size, pg, cp
def unread(size): return size
def read(size): return size
def by_locals(size): return locals()
def grows(size, dtype): return size, dtype
def any_word(size, **rest): return size, rest
""",
    "staff": "class Worker: ...\nclass Foreman: ...\n",
    "rest": "def kept(x): return x\ndef moved(x): return x\n",
}


def test_every_form_becomes_what_somebody_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What becomes of a form, where it changes, and why what will raise was not mended."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    old, new = source(tmp_path / "old", 50, **OF_FORMS_OLD), source(tmp_path / "new", 51, **OF_FORMS_NEW)
    repository = Repository(tmp_path / "repository")

    def answers(forms: list[str]) -> Iterator[str]:
        repository.commit({f"f{number}.py": f"{form}\n" for number, form in enumerate(forms)})
        result = unpatch("upgrade", "--from", old, "--to", new, "--write", cwd=repository.path)
        said = " ".join(result.err.split())
        for number, form in enumerate(forms):
            after = (repository.path / f"f{number}.py").read_text().removesuffix("\n")
            reasons = re.findall(rf"\bf{number}\.py:(\d+): (.*?[.;])(?= |$)", said)
            yield "".join([f"\n{after}" * (after != form), *(f"\n{line}: {why}" for line, why in reasons)])

    check_forms(FORMS, answers)


def test_which_release_stands_in_for_one_that_is_not_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest of its minor version, wherever that is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sources, "installed_source", lambda: None)
    given = {"megatron/core/a.py": b"given"}
    assert sources.stand_in("0.17.0", {}) is None  # no folder is there
    for release in ("0.17.0", "0.17.1", "0.16.0", "0.17.nonsense"):
        source(sources.cached(release), 0, a=f"# {release}\n")
    sources.cached("0.18.0").write_text("no folder")
    for wanted, at_hand, expected in (
        ("0.17.0", {}, "0.17.1"),
        ("0.17.9", {}, "0.17.1"),
        ("0.17.0", {"0.17.0": given, "0.18.2": given}, "0.17.1"),
        ("0.16.1", {}, "0.16.0"),
        ("0.16.0", {"0.16.1": given}, "0.16.1"),
        ("0.18.0", {}, None),
        ("0.18.0", {"0.18.2": given}, "0.18.2"),
    ):
        found = sources.stand_in(wanted, at_hand)
        assert (found and found[0]) == expected
        assert found is None or found[1]["megatron/core/a.py"].decode() in ("given", f"# {expected}\n")
