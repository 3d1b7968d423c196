"""Write `mcore_unpatch/megatron/commits.bin`: when each commit of Megatron-LM was, and between which releases it lies.

    python tools/build_commits.py CLONE       # a clone of NVIDIA/Megatron-LM with its branches and tags, bare or not

Of main, dev and the release branches all commits are listed: the first 8 digits, the day, the branch, the version in
`package_info.py`, the nearest release before and the nearest after. Nothing is fetched and nothing of it is run.
"""

from __future__ import annotations

import json
import lzma
import re
import subprocess
import sys
from collections.abc import Iterable
from datetime import date
from pathlib import Path

from mcore_unpatch.megatron.commits import START, Commit
from mcore_unpatch.megatron.versions import RELEASES

OUTPUT = Path(__file__).parents[1] / "mcore_unpatch" / "megatron" / "commits.bin"
_INFO = "megatron/core/package_info.py"
_RELEASE_BRANCH = re.compile(r"core_(?:dev_)?r(0\.\d+\.0)")
_NUMBER = re.compile(rb"""^(MAJOR|MINOR|PATCH|PRE_RELEASE) *= *['"]?(\w*)""", re.MULTILINE)


class Clone:
    """Questions to git about one clone."""

    def __init__(self, folder: str) -> None:
        bare = (Path(folder) / "objects").is_dir()
        self._git = ["git", f"--git-dir={folder}"] if bare else ["git", "-C", folder]

    def ask(self, *arguments: str, stdin: bytes | None = None) -> bytes:
        """What git says."""
        return subprocess.run([*self._git, *arguments], check=True, capture_output=True, input=stdin).stdout

    def words(self, *arguments: str) -> list[str]:
        """The same, split at white space."""
        return self.ask(*arguments).decode().split()

    def versions(self, commits: list[str]) -> dict[str, str]:
        """The version that the package says at each commit."""
        asked = "".join(f"{commit}:{_INFO}\n" for commit in commits).encode()
        told, at, said = self.ask("cat-file", "--batch", stdin=asked), 0, {}
        for commit in commits:
            end = told.index(b"\n", at)
            size = told[at:end].split()[-1]
            if size == b"missing":
                at = end + 1
                continue
            parts = {key.decode(): text.decode() for key, text in _NUMBER.findall(told[end : end + 1 + int(size)])}
            numbers = ".".join(parts.get(key, "0") for key in ("MAJOR", "MINOR", "PATCH"))
            said[commit] = f"{numbers}{parts.get('PRE_RELEASE', '')}"
            at = end + 2 + int(size)
        return said


def pack(commits: Iterable[Commit], names: dict[str, str]) -> bytes:
    """The bytes of a table."""
    ordered = sorted(commits, key=lambda one: one.digits)
    kinds = sorted({(one.branch, one.version, one.before, one.after) for one in ordered})
    head = json.dumps({"count": len(ordered), "names": dict(sorted(names.items())), "kinds": kinds}).encode()
    parts = [
        len(head).to_bytes(4),
        head,
        b"".join(bytes.fromhex(one.digits) for one in ordered),
        b"".join((one.day.toordinal() - START).to_bytes(2) for one in ordered),
        b"".join(kinds.index((one.branch, one.version, one.before, one.after)).to_bytes(2) for one in ordered),
    ]
    return lzma.compress(b"".join(parts), preset=9)


def main() -> None:
    """Read the clone and write the table; the same bytes for the same clone."""
    clone = Clone(sys.argv[1])
    heads = dict(_refs(clone, "refs/heads")) or dict(_refs(clone, "refs/remotes/origin"))
    tags = {name: commit for name, commit in _refs(clone, "refs/tags") if name.startswith("core_v")}
    releases = {
        match[1]: name for name in heads if (match := _RELEASE_BRANCH.fullmatch(name)) and name.startswith("core_r")
    }
    minors = sorted(releases, key=_order)
    bases = {minor: clone.words("merge-base", heads["main"], heads[releases[minor]])[0] for minor in minors}
    lines = ["main", *(releases[minor] for minor in minors), *(n for n in heads if n.startswith("core_dev_r")), "dev"]
    inside = {minor: set(clone.words("rev-list", base)) for minor, base in bases.items()}
    tips = [heads[line] for line in lines]
    behind = {
        minor: set(clone.words("rev-list", "--ancestry-path", f"^{base}", *tips)) for minor, base in bases.items()
    }
    tagged = {tag: set(clone.words("rev-list", commit)) for tag, commit in tags.items() if tag[6:] in RELEASES}
    days: dict[str, date] = {}
    line_of: dict[str, str] = {}
    for line in lines:
        shown = clone.words("log", "--format=%H %cs", heads[line], "--")
        for commit, day in zip(shown[::2], shown[1::2], strict=True):
            days[commit] = date.fromisoformat(day)
            line_of.setdefault(commit, line)
    versions = clone.versions(list(line_of))
    found = []
    for commit, line in line_of.items():
        before = max((minor for minor in minors if commit in behind[minor]), key=_order, default="")
        after = min((minor for minor in minors if commit in inside[minor]), key=_order, default="")
        if line == "dev" or line.startswith("core_dev_r"):  # never merged into a release: by its day
            after = min((one for one in minors if days[bases[one]] > days[commit]), key=_order, default="")
        elif line != "main":
            before, after = _on_a_branch(commit, line[6:], before, tagged)
        exact = [tag[6:] for tag in tagged if tags[tag] == commit]
        before, after = (exact[0], exact[0]) if exact else (before, after)
        found.append(Commit(commit[:8], days[commit], line, versions.get(commit, ""), before, after))
    named = {**tags, **{line: heads[line] for line in lines}}
    names = {name: commit[:8] for name, commit in named.items() if commit in line_of}
    OUTPUT.write_bytes(pack(found, names))
    print(f"{OUTPUT.name}: {len(found)} commits to {max(days.values())}, {OUTPUT.stat().st_size} bytes")


def _refs(clone: Clone, below: str) -> list[tuple[str, str]]:
    listed = clone.ask("for-each-ref", "--format=%(refname) %(objectname) %(*objectname)", below).decode()
    found = [line.split() for line in listed.splitlines()]
    return [(words[0].removeprefix(f"{below}/"), words[-1]) for words in found]


def _on_a_branch(commit: str, minor: str, before: str, tagged: dict[str, set[str]]) -> tuple[str, str]:
    """The releases around a commit of a release branch: those of its own minor version, where there are some."""
    own = [one for one in RELEASES if one.rpartition(".")[0] == minor.rpartition(".")[0]]
    older = [one for one in own if f"core_v{one}" in tagged and commit not in tagged[f"core_v{one}"]]
    last = older[-1] if older else before if before != minor else _previous(minor)
    later = [one for one in own if one not in older]
    return last, later[0] if later else ""


def _previous(minor: str) -> str:
    number = int(minor.split(".")[1]) - 1
    return f"0.{number}.0"


def _order(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


if __name__ == "__main__":
    main()
