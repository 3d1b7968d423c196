"""The page of a report: whole in itself, readable without JavaScript, and nothing of a repository acts in it."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, ERROR, unpatch
from downloads import unpacked
from limits import patience
from repository import Repository

from mcore_unpatch.report.counts import FATES
from mcore_unpatch.report.pages import Card, Pane, origin_of, page

PATCH = """
    from megatron.core.models.gpt.gpt_model import GPTModel

    def forward(self, *args):  # <script>alert("x")</script>
        return log_probs(args)

    GPTModel.forward = forward
"""


class Outline(HTMLParser):
    """Tags in order, and the text of the cards."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attributes if name in ("src", "href")]


def test_nothing_but_our_own_style_and_script_may_act() -> None:
    """A browser refuses all else, should something of a repository ever get through."""
    text = page("a", "b", {"bad": "Bad"}, {}, {"bad": "bad"}, [Card("bad", "x", "y:1", ())])
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    assert text.index("Content-Security-Policy") < text.index("<style>")
    allowed = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert allowed.pop(directive) == f"'sha256-{digest}'"
    assert allowed == {"default-src": "'none'", "base-uri": "'none'", "form-action": "'none'"}
    assert " style=" not in text
    assert " on" not in re.sub(r">[^<]*<", "><", text.partition("<body>")[2].partition("<script>")[0])


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_files(tmp_path, {"patches.py": PATCH, "requirements.txt": "megatron-core==0.17.1\n"})
    return tmp_path


@pytest.mark.parametrize("command", [["scan"], ["upgrade", "--to", "0.19"]])
def test_a_page_needs_nothing_from_outside(repository: Path, command: list[str]) -> None:
    result = unpatch(*command, "--output-format", "html", "-o", "report.html", cwd=repository)
    assert (result.code, result.out) == (CLEAN, "")
    text = (repository / "report.html").read_text(encoding="utf-8")
    outline = Outline(text)
    assert outline.tags.count("article") == 1
    assert outline.tags.count("script") == 1  # ours
    assert outline.links == []
    assert not re.search(r"https?:|@import|url\(", text)
    assert "patches.py:7" in text
    assert "<code>" in text


def test_the_diffs_of_migrate_on_request(tmp_path: Path) -> None:
    write_files(tmp_path, "from verl.models.mcore.mtp_patch import patch_postprocess\n")
    plain, full = (unpatch("scan", *more, "--output-format", "html", cwd=tmp_path).out for more in ([], ["-v"]))
    line = "+    from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess"
    assert (line in plain, line in full) == (False, True)


def test_what_a_repository_says_is_text(repository: Path) -> None:
    evil = '</span><script>alert("x")</script>\x1b[2J'
    cards = [Card(evil, evil, evil, (evil,), (Pane(evil, evil, True),))]
    text = page(evil, evil, {evil: evil}, {}, {evil: "bad"}, cards)
    assert Outline(text).tags.count("script") == 1
    assert "\x1b" not in text


def test_a_file_that_cannot_be_written_is_said(repository: Path) -> None:
    result = unpatch("scan", "--output-format", "html", "-o", "no/such/folder.html", cwd=repository)
    assert (result.code, "cannot be written" in result.err) == (ERROR, True)


@pytest.mark.parametrize(
    ("remote", "blob"),
    [
        ("https://user:secret@github.com/acme/rl.git", "https://github.com/acme/rl/blob/{}/a%20b.py#L2"),
        ("git@github.com:acme/rl.git", "https://github.com/acme/rl/blob/{}/a%20b.py#L2"),
        ("ssh://git@gitlab.acme.com:2222/x/y/rl", "https://gitlab.acme.com/x/y/rl/-/blob/{}/a%20b.py#L2"),
        ("https://example.com/acme/rl", ""),
        ("/srv/git/rl", ""),
    ],
)
def test_lines_are_linked_on_a_known_forge_that_has_the_commit(tmp_path: Path, remote: str, blob: str) -> None:
    work = Repository(tmp_path)
    work.commit({"a b.py": PATCH})
    work.git("config", "remote.origin.url", remote)
    assert origin_of(tmp_path).blob == "", "the commit is not known to be there"
    work.git("update-ref", "refs/remotes/origin/main", "HEAD")
    origin = origin_of(tmp_path)
    assert origin.link("a b.py", 2) == blob.format(origin.commit)
    assert origin.commit[:10] in str(origin)
    assert "secret" not in str(origin)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed")
def test_search_and_filter_in_a_browser(tmp_path: Path) -> None:
    kinds, looks = {"a": "Breaks", "b": "Harmless"}, {"a": "bad", "b": "plain", "m": "bad"}
    cards = [
        Card("a", "one", "x.py:1", ("alpha",)),
        Card("b", "two", "y.py:2", ("beta",), mark="m"),
        Card("b", "three", "z", ()),
        Card("b", "four", "tests/z", (), mark="m", group="tests"),
    ]
    probe = """<script>
        const title = (card) => card.querySelector("h2").textContent;
        const seen = () => [...document.querySelectorAll("article")].filter((card) => !card.hidden).map(title);
        const log = [seen()];
        form.search.value = "BETA"; form.dispatchEvent(new Event("input")); log.push(seen());
        form.search.value = ""; form.querySelector("input[value=b]").checked = false;
        form.dispatchEvent(new Event("input")); log.push(seen());
        form.querySelector("input[value=b]").click(); form.querySelector("input[value=m]").click(); log.push(seen());
        form.querySelector("input[value=tests]").click(); log.push(seen());
        log.push([...document.querySelectorAll("input, summary, a")].every((one) => {
          one.focus(); return document.activeElement === one && getComputedStyle(one).display !== "none"; }));
        document.title = JSON.stringify(log);
        document.body.textContent = document.title;
    </script>"""
    file = tmp_path / "page.html"
    text = page("t", "s", kinds, {"m": "Marked"}, looks, cards).replace("</body>", f"{probe}</body>")
    file.write_text(re.sub(r"<meta http-equiv=[^>]*>", "", text), encoding="utf-8")  # which would refuse the probe
    found = re.search(r"<title>(.*?)</title>", rendered(file))
    assert found is not None
    assert json.loads(found[1]) == [["one", "two", "three"], ["two"], ["one"], ["two"], ["two", "four"], True]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed")
def test_the_page_of_a_real_repository_in_a_browser(tmp_path: Path) -> None:
    folder = tmp_path / "verl" / "models" / "mcore"  # its patches alone: the repository around a folder is read too
    shutil.copytree(unpacked("verl", "0.8.0") / "verl" / "models" / "mcore", folder)
    command = ["scan", str(folder), "--target-mcore", "0.19", "--jobs", "1"]
    assert unpatch(*command, "--output-format", "html", "-o", "up.html", cwd=tmp_path).code == CLEAN
    numbers = unpatch(*command, "--output-format", "json", cwd=tmp_path).json["counts"]["code"]
    text = rendered(tmp_path / "up.html")
    assert numbers["total"] > 5
    assert f"{numbers['total']} of {numbers['total']} shown" in text
    for fate in FATES:
        assert text.count(f'data-kind="{fate}"') == numbers[fate]


def rendered(file: Path) -> str:
    """The page as a browser has it after its script ran."""
    quiet = ["--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update"]
    profile = f"--user-data-dir={file.parent}/profile"
    command = ["chromium", "--headless", "--no-sandbox", *quiet, "--disable-sync", profile, "--dump-dom", file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=patience(200), check=True).stdout
