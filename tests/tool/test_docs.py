"""What the documentation names exists: files, pages, modules, tests, commands, options, messages, fields."""

import ast
import html
import inspect
import json
import os
import re
import shutil
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from builders import load_builder
from command import commands, unpatch
from repository import Repository

from mcore_unpatch import audit, pins
from mcore_unpatch.findings.rules import rules

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("tools/*/*.md"),
    )
)
FOLDERS = "benchmarks|codemods|compat|docs|examples|mcore_unpatch|tests|tools"
# Of other repositories: the file of a plugin that a reader writes.
ELSEWHERE = {"tests/test_examples.py"}

pytestmark = pytest.mark.skipif(not (ROOT / "docs").exists(), reason="the wheel has no pages")


@pytest.mark.parametrize("page", PAGES)
def test_files_and_links(page: str) -> None:
    text = _text(page)
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    missing = [link for link in links if not (ROOT / page).parent.joinpath(link).exists()]
    for link, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", text):
        headings = re.findall(
            r"^#+ (.*)", ((ROOT / page).parent / link if link else ROOT / page).read_text(), re.MULTILINE
        )
        slugs = {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
        missing += [f"{link}#{anchor}"] if anchor not in slugs else []
    files = re.findall(rf"(?<![\w./-])(?:{FOLDERS})/[\w./*{{}},-]*[\w*/}}]", text)
    missing += [name for name in files if not _exists(name)]
    assert set(missing) <= ELSEWHERE


def test_the_navigation_leads_to_every_page() -> None:
    linked = re.findall(r"^ +- [^:]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(f"docs/{page}" for page in linked) == [page for page in PAGES if page.startswith("docs/")]


@pytest.mark.parametrize("page", PAGES)
def test_modules_and_tests(page: str) -> None:
    text = _text(page)
    modules = re.findall(r"mcore_unpatch(?:\.[a-z_0-9]+)*(?=\.?[^\w.]|\.?$)", text, re.MULTILINE)
    missing = [name for name in set(modules) if not _is_module(name) and not _is_module(name.rpartition(".")[0])]
    tests = re.findall(r"`(?:[\w/]*::)?(test_\w+?)(?:_?\.\.\.|\.py|\[[^`]*\])?`", text)
    missing += [name for name in set(tests) if not any(known.startswith(name) for known in _all_tests())]
    assert set(missing) <= ELSEWHERE


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options(page: str) -> None:
    there, text = commands(), _text(page)
    wrong = []
    for name, rest in re.findall(r"(?:^|`|\$ |\| |; |: )unpatch ([a-z]+)([^`\n|;#]*)", text, re.MULTILINE):
        if name not in there:
            wrong.append(name)
            continue
        known = {option for parameter in there[name].params for option in (*parameter.opts, *parameter.secondary_opts)}
        wrong += [
            f"{name} {option}" for option in re.findall(r"(?<=\s)--[a-z-]+", rest) if option not in {*known, "--help"}
        ]
    assert not wrong


def test_no_text_promises_what_a_release_to_come_will_have() -> None:
    """The hook above all: on HybridModel no release has it, and its pull request is open."""
    folders = ("codemods", "compat", "docs", "mcore_unpatch")
    texts = [path for folder in folders for end in ("md", "py", "toml") for path in (ROOT / folder).rglob(f"*.{end}")]
    to_come = r"\b0\.2\d\b"
    promised = (
        re.compile(rf"(?:hook|processor|HybridModel)[^.]{{0,120}}{to_come}", re.IGNORECASE),
        re.compile(rf"{to_come}[^.]{{0,120}}(?:hook|processor|HybridModel)", re.IGNORECASE),
        re.compile(rf"(?:expected|comes|will be|planned) (?:in|for|with) (?:megatron-core )?{to_come}"),
    )
    said = {
        path.relative_to(ROOT).as_posix(): re.sub(r"\n#?\s*", " ", path.read_text())
        for path in (*texts, ROOT / "README.md")
    }
    assert not [(path, found[0]) for path, text in said.items() for each in promised for found in each.finditer(text)]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample project, in a repository of its own."""
    repository = Repository(tmp_path_factory.mktemp("sample") / "tiny_rl")
    shutil.copytree(ROOT / "examples" / "tiny_rl", repository.path, dirs_exist_ok=True)
    return repository.path


def test_the_first_page_shows_what_is_printed(sample: Path) -> None:
    """Its output of `upgrade`, its diff, and its picture."""
    said = unpatch("upgrade", "--from", "0.17", "--to", "0.19", cwd=sample).out
    diff = unpatch("migrate", "--diff", cwd=sample).out
    page = _read("get-started/upgrade-and-migrate.md")
    text, changed = (re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("text", "diff"))
    assert text and changed
    assert [block for block in text if block not in said] == []
    assert [block for block in changed if block not in diff] == []
    assert _not_drawn(said, "terminal.svg") == [], "tools/record_terminal.py"


@pytest.mark.slow
def test_the_picture_of_the_readme_is_what_is_printed_of_verl() -> None:
    clone = Path(os.environ.get("MCORE_UNPATCH_CHECKOUTS", "/nowhere")) / "verl"
    if not clone.is_dir():
        pytest.skip("MCORE_UNPATCH_CHECKOUTS names no folder with a clone of veRL")
    said = unpatch("upgrade", "--to", "0.19.2", cwd=clone).out
    table = re.split(r"\n(?=[^\n]*Raises on )", said)[0]
    assert _not_drawn(table, "verl.svg") == [], "tools/record_terminal.py CLONE_OF_VERL"


def test_figures_are_those_that_were_measured() -> None:
    """Of the README and the Start page; the files are written by the benchmarks."""
    [beside], [gpu] = (list(ROOT.rglob(name)) for name in ("docs/**/beside.json", "docs/**/gpu.json"))
    taken = {
        (one["peer"], *one["shape"]): one["train"]
        for one in (*json.loads(beside.read_text())["gpu"]["figures"], *json.loads(gpu.read_text())["shapes"])
        if "ms" in one.get("train", {}) and one["entropy"]
    }
    readme = " ".join((ROOT / "README.md").read_text().split())
    for peer, sentence in {
        "ours": "forward and backward on an H200: {ms:.0f} ms and {gib:.1f} GiB",
        "ours, all kept": "or {ms:.0f} ms and {gib:.1f} GiB with `keep_bytes=`",
        "veRL's kernel": "veRL's kernel takes {ms:.0f} ms",
        "materialised, compiled": "all logits under `torch.compile` take {ms:.0f} ms and {gib:.1f} GiB",
    }.items():
        assert sentence.format(**taken[peer, 16384, 4096, 151936]) in readme
    assert "16,384 tokens, a vocabulary of 151,936" in readme
    step = next(_values(json.loads(gpu.read_text()), "training_step"))
    rows = re.findall(r"^\| [^|]+ \| ([\d.]+) \| ([\d.]+) \|$", _read("index.md"), re.MULTILINE)
    assert rows
    assert set(rows) <= {(f"{one['ms']:.1f}", f"{one['gib']:.1f}") for one in step.values() if isinstance(one, dict)}


def test_the_messages_under_troubleshooting_are_those_of_the_source() -> None:
    sources = [path.read_text() for folder in ("compat", "mcore_unpatch") for path in (ROOT / folder).rglob("*.py")]
    headings = re.findall(r"^### (.*)$", _read("troubleshooting.md"), re.MULTILINE)
    wanted = [part for heading in headings for part in heading.split(", or ")]
    assert len(headings) == 10
    assert [part for part in wanted if not any(part in text for text in sources)] == []


def test_the_page_of_the_api_has_every_public_name() -> None:
    listed = re.findall(r"^::: mcore_unpatch\.compat\.(\w+)$", _read("reference/api.md"), re.MULTILINE)
    stub = ast.parse((ROOT / "compat" / "__init__.pyi").read_text())
    assert sorted(listed) == sorted(alias.name for node in stub.body for alias in getattr(node, "names", []))


def test_calls_on_the_pages_of_gate_and_audit_fit() -> None:
    """They stand in a program of the reader's: each is bound to the arguments of what it calls."""
    called = 0
    for page in ("how-to/gate.md", "how-to/audit.md"):
        for block in re.findall(r"```python\n(.*?)```", _read(page), re.DOTALL):
            for node in ast.walk(ast.parse(block)):
                match node:
                    case ast.Call(func=ast.Attribute(value=ast.Name(id="audit" | "pins" as name), attr=attribute)):
                        function = getattr({"audit": audit, "pins": pins}[name], attribute)
                        inspect.signature(function).bind(*node.args, **{one.arg: one for one in node.keywords})
                        called += 1
    assert called >= 7


@pytest.mark.parametrize("page", [page for page in PAGES if not page.endswith("changes.md")])
def test_rules_and_shapes_are_known(page: str) -> None:
    codes = re.findall(r"\bMCU\d+\b", _text(page))
    assert [code for code in codes if not any(known.startswith(code) for known in rules())] == []
    if page.endswith("json.md"):
        table = _text(page).partition("| shape |")[2].partition("\n\n")[0]
        shapes = [
            word
            for row in re.findall(r"^\| ([^|]*) \|", table, re.MULTILINE)
            for word in re.findall("`([\\w-]+)`", row)
        ]
        sources = [path.read_text() for path in (ROOT / "mcore_unpatch").rglob("*.py")]
        assert len(shapes) == 13
        assert [shape for shape in shapes if not any(f'"{shape}"' in text for text in sources)] == []


def test_the_settings_shown_fit_the_schema() -> None:
    schema = json.loads((ROOT / "docs" / "unpatch.schema.json").read_text())
    blocks = [
        tomllib.loads(block)["tool"]["unpatch"]
        for page in ("reference/configuration.md", "how-to/upgrade.md")
        for block in re.findall(r"```toml\n(.*?)```", _read(page), re.DOTALL)
    ]
    assert len(blocks) == 2
    for block in blocks:
        jsonschema.validate(block, schema)


def test_the_fields_of_the_json_are_those_that_are_written(sample: Path) -> None:
    page = _read("reference/json.md")
    shown = json.loads(re.findall(r"```json\n(.*?)```", page, re.DOTALL)[0])
    scanned = unpatch("scan", "--output-format", "json", cwd=sample).json
    assert shown.keys() == scanned.keys()
    assert shown["findings"][0].keys() == scanned["findings"][0].keys()
    assert shown["counts"]["code"].keys() == scanned["counts"]["code"].keys()
    upgraded = unpatch("upgrade", "--from", "0.17", "--to", "0.19", "--output-format", "json", cwd=sample).json
    migrated = unpatch("migrate", "--diff", "--output-format", "json", cwd=sample).json
    for report, section in ((upgraded, "upgrade"), (migrated, "migrate")):
        text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        names = set(re.findall(r'"(\w+)"', text)) | {"kind", "name", "by", "words", "exception"}
        assert set(report) <= names
        for key in {"upgrade": ("megatrons", "patches", "events"), "migrate": ("files", "edits", "remarks")}[section]:
            assert {name for row in report[key] for name in row} <= names | {"releases"}
        assert report["patches" if section == "upgrade" else "edits"]


def test_the_site_has_every_command_and_codemod(sample: Path) -> None:
    pages = load_builder("fill_pages")
    made = pages.on_page_markdown(_read("reference/command-line.md"))
    for name, command in commands().items():
        assert f"## unpatch {name}\n" in made
        for parameter in command.params:
            assert all(option in made for option in parameter.opts if option.startswith("--"))
    made = pages.on_page_markdown(_read("reference/rewrites.md"))
    assert all(f"\n{one.before.strip()}\n" in made for codemod in pages.codemods() for one in codemod.examples[:1])
    assert "GPTModel._postprocess" in pages.report()


def _read(page: str) -> str:
    return (ROOT / "docs" / page).read_text()


def _not_drawn(said: str, picture: str) -> list[str]:
    """The lines of an output that a picture does not show."""
    drawn = html.unescape(re.sub(r"<[^>]*>", "", (ROOT / "docs" / "img" / picture).read_text()))
    shown = "".join(drawn.split())
    return [line for line in said.splitlines() if "".join(line.split()) not in shown]


def _values(data: Any, key: str) -> Iterator[Any]:
    """Every value under a key, however deep."""
    if isinstance(data, dict):
        yield from ([data[key]] if key in data else [])
        for value in data.values():
            yield from _values(value, key)
    elif isinstance(data, list):
        for value in data:
            yield from _values(value, key)


def _text(page: str) -> str:
    """The page, without the section that names the tests of other repositories."""
    return re.sub(r"## The downstreams' own tests\n.*?(?=\n## )", "", (ROOT / page).read_text(), flags=re.DOTALL)


def test_the_page_of_the_design_names_files_that_exist() -> None:
    named = re.findall(r"`([\w/]+/\w+\.(?:py|bin|toml|json))`", _read("develop/design.md"))
    assert len(named) > 15
    assert [name for name in named if not any((ROOT / top / name).is_file() for top in ("", "mcore_unpatch"))] == [
        "verl/models/mcore/mtp_patch.py"
    ]


def _exists(name: str) -> bool:
    if alternatives := re.search(r"{([^}]*)}", name):
        return all(_exists(name.replace(alternatives[0], one)) for one in alternatives[1].split(","))
    return any(ROOT.glob(name.rstrip("/")))


def _is_module(name: str) -> bool:
    _, *parts = name.split(".")
    path = (ROOT if parts[:1] in (["compat"], ["codemods"]) else ROOT / "mcore_unpatch").joinpath(*parts)
    return path.is_dir() or path.with_suffix(".py").is_file()


@cache
def _all_tests() -> set[str]:
    """Test functions and files; pages shorten long names."""
    paths = list((ROOT / "tests").rglob("*.py"))
    found = {path.stem for path in paths}
    return found.union(*(re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE) for path in paths))
