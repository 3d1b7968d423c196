"""What the documentation names exists: files, pages, modules, tests, commands and their options."""

import html
import re
import shutil
from functools import cache
from pathlib import Path

import pytest
from command import commands, unpatch
from repository import Repository

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("tools/*/*.md"),
    )
)
FOLDERS = "benchmarks|codemods|compat|docs|examples|integrations|mcore_unpatch|tests|tools"
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


def test_the_start_page_shows_what_is_printed(tmp_path: Path) -> None:
    """Its output of `upgrade`, its diff, and the picture of the README."""
    repository = Repository(tmp_path / "tiny_rl")
    shutil.copytree(ROOT / "examples" / "tiny_rl", repository.path, dirs_exist_ok=True)
    said = unpatch("upgrade", "--from", "0.17", "--to", "0.19", cwd=repository.path).out
    diff = unpatch("migrate", "--diff", "--unsafe-fixes", cwd=repository.path).out
    page = (ROOT / "docs" / "index.md").read_text()
    assert [block for block in re.findall(r"```text\n(.*?)```", page, re.DOTALL) if block not in said] == []
    assert [block for block in re.findall(r"```diff\n(.*?)```", page, re.DOTALL) if block not in diff] == []
    drawn = html.unescape(re.sub(r"<[^>]*>", "", (ROOT / "docs" / "img" / "terminal.svg").read_text()))
    shown = "".join(drawn.split())
    assert [line for line in said.splitlines() if "".join(line.split()) not in shown] == [], "tools/record_terminal.py"


def _text(page: str) -> str:
    """The page, without the section that names the tests of other repositories."""
    return re.sub(r"## The downstreams' own tests\n.*?(?=\n## )", "", (ROOT / page).read_text(), flags=re.DOTALL)


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
