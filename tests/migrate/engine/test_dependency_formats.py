"""Poetry's table, setup.py and setup.cfg get the dependency too, and one that lacks the extra gets that."""

from __future__ import annotations

import contextlib
import tomllib
from pathlib import Path

import pytest
from dependency_sample import LINE, added
from hypothesis import given, settings, strategies as st
from sample_repository import Sample, planner

from mcore_unpatch.errors import UsageError
from mcore_unpatch.migrate import table
from mcore_unpatch.migrate.dependencies.choice import listed
from mcore_unpatch.migrate.dependencies.listing import Listing
from mcore_unpatch.migrate.dependencies.poetry import poetry_tables
from mcore_unpatch.migrate.dependencies.setup_cfg import setup_cfg_lists
from mcore_unpatch.migrate.dependencies.setup_py import setup_py_lists
from mcore_unpatch.migrate.engine import migrate, preview
from mcore_unpatch.migrate.undo import undo

POETRY = 'mcore-unpatch = {version = "*", extras = ["compat"]}\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('python = "^3.11"\ntorch = "^2"\n', f'python = "^3.11"\ntorch = "^2"\n{POETRY}'),
        (
            'python = "^3.11"\naccelerate = "*"\n# the trainer\ntorch = {version = "^2", extras = ["x"]}  # why\n',
            (
                f'python = "^3.11"\naccelerate = "*"\n{POETRY}# the trainer\n'
                'torch = {version = "^2", extras = ["x"]}  # why\n'
            ),
        ),
        ('numpy = "*"\ntorch = "*"\n', f'{POETRY}numpy = "*"\ntorch = "*"\n'),
        ('python = "^3.11"\nnumpy = "*"\ntorch = "*"\n', f'python = "^3.11"\n{POETRY}numpy = "*"\ntorch = "*"\n'),
        (
            'torch = "*"\n"a.b" = [\n  {version = "1", python = "<3.9"},\n]\n',
            f'torch = "*"\n"a.b" = [\n  {{version = "1", python = "<3.9"}},\n]\n{POETRY}',
        ),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_poetrys_table(tmp_path: Path, before: str, after: str, newline: str) -> None:
    text = (
        '[tool.poetry]\nname = "x"\n\n[tool.poetry.dependencies]\n{}\n[tool.poetry.group.dev.dependencies]\nz = "*"\n'
    )
    old, new = (text.replace("{}", part).replace("\n", newline) for part in (before, after))
    assert added(tmp_path, {"pyproject.toml": old}) == ("pyproject.toml", new)


def test_poetrys_table_at_the_end_of_a_file(tmp_path: Path) -> None:
    before = '[tool.poetry.dependencies]\npython = "^3.11"'
    assert added(tmp_path, {"pyproject.toml": before})[1] == f"{before}\n{POETRY}".removesuffix("\n")


def test_poetrys_group_that_lists_megatron(tmp_path: Path) -> None:
    text = (
        '[tool.poetry.dependencies]\ntorch = "*"\n[tool.poetry.group.mcore.dependencies]\nmegatron-core = ">=0.16"\n'
        '[tool.poetry.dependencies.numpy]\nversion = "*"\n'
    )
    after = tomllib.loads(added(tmp_path, {"pyproject.toml": text})[1])["tool"]["poetry"]
    assert after["group"]["mcore"]["dependencies"]["mcore-unpatch"] == {"version": "*", "extras": ["compat"]}


def test_project_dependencies_come_before_poetrys(tmp_path: Path) -> None:
    text = '[tool.poetry.dependencies]\ntorch = {source = "x"}\n[project]\ndependencies = ["torch"]\n'
    assert f'["torch", "{LINE}"]' in added(tmp_path, {"pyproject.toml": text})[1]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('["torch", "numpy"]', '["torch", "numpy", "mcore-unpatch[compat]"]'),
        ("[]", '["mcore-unpatch[compat]"]'),
        (
            "[\n        'numpy',  # [x]\n        'torch>=2',\n    ]",
            "[\n        'mcore-unpatch[compat]',\n        'numpy',  # [x]\n        'torch>=2',\n    ]",
        ),
        ('[  # ü\n        "ü",\n    ]', '[  # ü\n        "ü",\n        "mcore-unpatch[compat]",\n    ]'),
    ],
)
def test_a_literal_list_of_setup_py(tmp_path: Path, before: str, after: str) -> None:
    text = 'import setuptools\n\nsetuptools.setup(\n    name="ü", install_requires={},\n    extras_require=dict(),\n)\n'
    files = {"setup.py": text.replace("{}", before), "requirements.txt": "torch\n"}
    assert added(tmp_path, files) == ("setup.py", text.replace("{}", after))


NAMED = """\
from setuptools import setup

install_requires = [
    "torch",
    "accelerate",
]
MCORE = ["mbridge", "megatron-core"]
TEST = ["pytest"]
extras = {"test": TEST, "mcore": MCORE}
setup(install_requires=install_requires, extras_require=extras, version=open("version").read())
"""


def test_lists_of_setup_py_that_have_a_name(tmp_path: Path) -> None:
    assert added(tmp_path, {"setup.py": NAMED})[1] == NAMED.replace(
        '["mbridge", "megatron-core"]', f'["mbridge", "{LINE}", "megatron-core"]'
    )
    without = NAMED.replace('"megatron-core"', '"x"')
    assert added(tmp_path, {"setup.py": without})[1] == without.replace(
        '    "accelerate",\n', f'    "accelerate",\n    "{LINE}",\n'
    )


@pytest.mark.parametrize(
    "value", ["read('requirements.txt')", "['a', *b]", "[f'torch=={v}']", "base + ['a']", "['a', version]"]
)
def test_a_list_of_setup_py_that_is_computed_is_left_alone(tmp_path: Path, value: str) -> None:
    files = {"setup.py": f"setup(install_requires={value})\n"}
    with pytest.raises(UsageError, match=r"a literal install_requires .* add 'mcore-unpatch\[compat\]' by hand"):
        added(tmp_path, files)
    assert added(tmp_path, files | {"requirements.txt": ""}) == ("requirements.txt", f"{LINE}\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("\n    torch\n    numpy>=1\n", f"\n    torch\n    numpy>=1\n    {LINE}\n"),
        ("\n\tnumpy\n\t# the trainer\n\ttorch\n", f"\n\t{LINE}\n\tnumpy\n\t# the trainer\n\ttorch\n"),
        (" torch\n", f" torch\n    {LINE}\n"),
        ("\n", f"\n    {LINE}\n"),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_setup_cfg(tmp_path: Path, before: str, after: str, newline: str) -> None:
    text = "[metadata]\nname = x\n\n[options]\ninstall_requires ={}\n[options.extras_require]\nt = pytest\n"
    old, new = (text.replace("{}", part).replace("\n", newline) for part in (before, after))
    assert added(tmp_path, {"setup.cfg": old, "setup.py": "setup()\n"}) == ("setup.cfg", new)


def test_setup_cfg_without_a_final_newline(tmp_path: Path) -> None:
    text = "[options]\ninstall_requires = torch"
    assert added(tmp_path, {"setup.cfg": text})[1].startswith(f"{text}\n    {LINE}")


def test_the_file_that_setup_cfg_names(tmp_path: Path) -> None:
    files = {
        "setup.cfg": "[options]\ninstall_requires = file: base.txt\n",
        "base.txt": "torch\n",
        "requirements.txt": "",
    }
    assert added(tmp_path, files) == ("base.txt", f"torch\n{LINE}\n")


def test_a_list_with_semicolons_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="by hand"):
        added(tmp_path, {"setup.cfg": "[options]\ninstall_requires = torch; numpy\n"})


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("requirements.txt", "a\nmcore-unpatch>=0.1,<2  # why\n", "a\nmcore-unpatch[compat]>=0.1,<2  # why\n"),
        ("requirements.txt", "mcore_unpatch [x] ==1 ; a\r\n", "mcore_unpatch [x,compat] ==1 ; a\r\n"),
        ("requirements.txt", "mcore-unpatch @ git+https://x/y", "mcore-unpatch[compat] @ git+https://x/y"),
        (
            "pyproject.toml",
            "[project]\ndependencies = [\n  'mcore-unpatch ~= 0.1',  # x\n]\n",
            "[project]\ndependencies = [\n  'mcore-unpatch[compat] ~= 0.1',  # x\n]\n",
        ),
        (
            "pyproject.toml",
            '[tool.poetry.dependencies]\nmcore-unpatch = "^0.1"  # x\ntorch = "*"\n',
            '[tool.poetry.dependencies]\nmcore-unpatch = {version = "^0.1", extras = ["compat"]}  # x\ntorch = "*"\n',
        ),
        (
            "pyproject.toml",
            "[tool.poetry.dependencies]\nmcore-unpatch = { version = '^0.1', optional = true }\n",
            (
                "[tool.poetry.dependencies]\n"
                "mcore-unpatch = { version = '^0.1', optional = true, extras = [\"compat\"] }\n"
            ),
        ),
        (
            "pyproject.toml",
            "[tool.poetry.dependencies]\nmcore-unpatch = {extras = ['x'], git = \"https://x\"}\n",
            "[tool.poetry.dependencies]\nmcore-unpatch = {extras = ['x', 'compat'], git = \"https://x\"}\n",
        ),
        (
            "setup.py",
            'setup(install_requires=["mcore-unpatch==1"])',
            'setup(install_requires=["mcore-unpatch[compat]==1"])',
        ),
        (
            "setup.cfg",
            "[options]\ninstall_requires =\n  a\n  mcore-unpatch>1\n",
            "[options]\ninstall_requires =\n  a\n  mcore-unpatch[compat]>1\n",
        ),
    ],
)
def test_the_extra_is_put_in_and_the_version_stays(tmp_path: Path, name: str, before: str, after: str) -> None:
    files = {name: before, **({"requirements-dev.txt": "megatron-core\n"} if name != "requirements.txt" else {})}
    assert added(tmp_path, files) == (name, after)
    (tmp_path / name).write_bytes(before.encode())
    assert listed(tmp_path, tmp_path) == (name, False)
    (tmp_path / name).write_bytes(after.encode())
    assert listed(tmp_path, tmp_path) == (name, True)


def test_one_listing_with_the_extra_is_enough(tmp_path: Path) -> None:
    text = f'[project]\ndependencies = ["mcore-unpatch"]\n[project.optional-dependencies]\nrl = ["{LINE}>=0.1"]\n'
    (tmp_path / "pyproject.toml").write_text(text)
    assert listed(tmp_path, tmp_path) == ("pyproject.toml", True)


def test_a_table_of_its_own_is_left_to_a_person(tmp_path: Path) -> None:
    text = '[tool.poetry.dependencies.mcore-unpatch]\nversion = "^0.1"\n'
    with pytest.raises(UsageError, match=r"cannot add 'mcore-unpatch\[compat\]' to .*pyproject.toml .* by hand"):
        added(tmp_path, {"pyproject.toml": text})


def test_a_text_that_would_mean_something_else_is_refused(tmp_path: Path) -> None:
    """Dotted keys: a new line below them would belong to the table above."""
    with pytest.raises(UsageError, match=r"cannot add 'mcore-unpatch\[compat\]' to .* without changing more"):
        added(tmp_path, {"pyproject.toml": '[tool.poetry]\nname = "x"\ndependencies.torch = "*"\n'})


def told(sample: Sample, **options: bool) -> str:
    """The row of the table, and the outcome is written if nothing else is asked for."""
    run = migrate if options else preview
    with contextlib.chdir(sample.root):
        text = " ".join(
            "".join(piece for piece, _ in line) for line in table.lines(run(sample.request(**options), planner))
        )
    return " ".join(text.partition("  dependency ")[2].split())


def test_the_lacking_extra_is_told_and_put_in_when_asked_for(sample: Sample) -> None:
    file = sample.root / "requirements.txt"
    file.write_text("mcore-unpatch>=0.1\n")
    sample.commit()
    assert "listed in requirements.txt without the extra: add it, or run with --add-dependency" in told(sample)
    assert file.read_text() == "mcore-unpatch>=0.1\n"
    assert "(the extra added to requirements.txt)" in told(sample, add_dependency=True)
    assert file.read_text() == "mcore-unpatch[compat]>=0.1\n"
    undo(sample.root)
    assert file.read_text() == "mcore-unpatch>=0.1\n"


NAMES = st.from_regex(r"[a-z][a-z0-9]{0,4}(\[[a-z]\])?(>=[0-9])?", fullmatch=True)
LAYOUT = st.tuples(st.sampled_from(["\n", "\r\n"]), st.sampled_from(["  ", "\t", "    "]), st.booleans())


def only_inserted(listing: Listing) -> None:
    """The new text is the old one with something put in at one place."""
    before, after = listing.text, listing.adding(LINE)
    same = next((index for index, old in enumerate(before) if after[index] != old), len(before))
    assert after.endswith(before[same:])


@given(st.lists(st.tuples(NAMES, st.sampled_from(["", "  # [so]", "  # 'ü\""])), max_size=5, unique=True), LAYOUT)
@settings(max_examples=60, deadline=None)
def test_any_list_gets_one_more(items: list[tuple[str, str]], layout: tuple[str, str, bool]) -> None:
    newline, indent, final = layout
    end = newline if final else ""
    rows = [f'{indent}"{name}",{comment}' for name, comment in items]
    [python] = setup_py_lists(Path("x"), newline.join(["setup(install_requires=[", *rows, "])"]) + end)
    only_inserted(python)
    lines = newline.join(["[options]", "install_requires =", *(f"{indent}{name}" for name, _ in items), "x = 1"]) + end
    [config] = setup_cfg_lists(Path("x"), lines)
    only_inserted(config)
    entries = {name.partition("[")[0].partition(">")[0]: comment for name, comment in items} or {"python": ""}
    keys = [f'{name} = {{version = "1"}}{comment}' for name, comment in entries.items()]
    [poetry] = poetry_tables(Path("x"), newline.join(["[tool.poetry.dependencies]", *keys]) + end)
    only_inserted(poetry)


def test_poetrys_table_on_one_line_is_no_list_to_add_to(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="found no list of dependencies to add to"):
        added(tmp_path, {"pyproject.toml": '[tool.poetry]\ndependencies = {torch = "*"}\n'})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[]", f'["{LINE}"]'),
        ("[\n]", f'[\n    "{LINE}",\n]'),
        ("['torch']", f"['torch', '{LINE}']"),
        ("[\n    'torch']", f"[\n    'torch',\n    '{LINE}']"),
        ("[\n    'torch',\n]", f"[\n    'torch',\n    '{LINE}',\n]"),
    ],
)
def test_a_list_in_setup_py(tmp_path: Path, before: str, after: str) -> None:
    text = "from setuptools import setup\n\nsetup(install_requires={})\n"
    assert added(tmp_path, {"setup.py": text.format(before)}) == ("setup.py", text.format(after))
