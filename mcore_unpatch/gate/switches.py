"""What a change switches off of the gate itself: settings, entries of a baseline, pins; a finding each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from mcore_unpatch import pins
from mcore_unpatch.errors import UsageError
from mcore_unpatch.findings.finding import Finding, switched_off
from mcore_unpatch.findings.rules import Selection, rules
from mcore_unpatch.gate import baseline, compare, pinned
from mcore_unpatch.records import record
from mcore_unpatch.repository import git
from mcore_unpatch.repository.config import Config, table_of
from mcore_unpatch.repository.paths import relative

_MARK = "megatron/core/package_info.py"
_MOST_COMMITS = 50  # that touched a setting


@record
class Gate:
    """The settings of a change, those of the commits it is compared with, and the baseline that is in force."""

    top: Path
    revisions: tuple[str, ...]
    now: Config
    before: tuple[Config, ...]
    baseline: Path | None = None
    own_base: bool = False  # the base is what the settings of the change say

    def switched_off(
        self, paths: list[str], renamed: dict[str, str], before: list[Finding], now: list[Finding], new: list[Finding]
    ) -> list[Finding]:
        """One finding for each; `paths` are the files of the change, `renamed` gives their old names.

        `before` are the findings of the commits, `now` those of the change, `new` its own alone. To accept what was
        there before, in a first lock or baseline, switches nothing off.
        """
        there = {finding.target for finding in now}
        settled = {finding.target for finding in before}.difference(finding.target for finding in new)
        accepted = self._baseline(renamed, before)
        settings = [list(self._settings(before)) for before in self.before]
        anew = [setting for setting in settings[0] if all(setting in others for others in settings)]
        findings = [*anew, *accepted, *self._pins(settled, there), *self._carried(paths)]
        return [*findings, *self._moved_base()] if self.own_base else findings

    def _settings(self, before: Config) -> Iterator[Finding]:
        now = self.now
        file = self._project_file(now) or self._project_file(before)  # that of the base alone, where it is gone
        if file is None or (now.folder, now.values) == (before.folder, before.values):
            return
        same = now.folder == before.folder
        for key in ("exclude", "ignore"):
            for entry in now.list(key):
                if not same or entry not in before.list(key):
                    yield self._finding(file, f'"{entry}"', f"what it names, with `{key}`: {entry!r}")
        if now.list("select") != before.list("select"):
            chosen, earlier = (Selection.parse(config.list("select"), []) for config in (now, before))
            if lost := [code for code in rules() if code in earlier and code not in chosen]:
                yield self._finding(file, "select", f"{', '.join(lost)}, with `select`")
        known = now.text("baseline")
        if known and (not same or known != before.text("baseline")):
            yield self._finding(file, "baseline", f"what it accepts, with `baseline`: {known!r}")
        if before.text("base") and now.text("base") and now.text("base") != before.text("base"):
            yield self._finding(file, "base", f"the comparison with {before.text('base')!r}, with `base`")

    def _baseline(self, renamed: dict[str, str], before: list[Finding]) -> Iterator[Finding]:
        if self.baseline is None or not self.baseline.resolve().is_relative_to(self.top):
            return
        file = relative(self.baseline.resolve(), self.top)
        for path, counts in baseline.added(self.baseline, self.top, self.revisions, renamed, before).items():
            for rule, more in counts.items():
                yield self._finding(file, f'"{path}"', f"{more} {rule} in {path}, with a baseline entry")

    def _pins(self, settled: set[str], there: set[str]) -> Iterator[Finding]:
        file = pinned.lock_file(self.top)
        known = compare.pinned_at(self.top, self.revisions)
        now = pins.load(file).pins if file is not None else {}
        for name, pin in now.items():
            at = f'name = "{name}"'
            if pin.patched and name not in settled and (name not in known or pin.speaks_for_more(known[name])):
                yield self._finding(pins.LOCK, at, f"the gate for `{pin.short}`, with a pin")
            old = known.get(name, pin)
            if old.until and pin.until != old.until and name in there:
                yield self._finding(pins.LOCK, at, f"the end of the pin of `{pin.short}`, `until` {old.until}")
        for name, pin in known.items():
            if name in there and not (name in now and now[name].patched):
                yield self._finding(pins.LOCK, "", f"the pin of `{pin.short}`, whose patch stays")

    def _carried(self, paths: list[str]) -> Iterator[Finding]:
        for path in paths:
            known = (git.file_at(self.top, revision, path) for revision in self.revisions)
            if f"/{path}".endswith(f"/{_MARK}") and not any(setting is not None for setting in known):
                folder = path.removesuffix("/core/package_info.py")
                what = f"what is below {folder}, which counts as Megatron's own source from now on"
                yield self._finding(path, "", what)

    def _moved_base(self) -> Iterator[Finding]:
        """A base that the change itself chose: the last one that does not contain the commit that changed it."""
        file, now = self._project_file(self.now), self.now.text("base")
        if file is None or now is None:
            return
        touched = ("log", f"-{_MOST_COMMITS}", "--format=%H", "--no-textconv", "--no-ext-diff", r"-Gbase\s*=")
        for commit in git.run(self.top, *touched, "HEAD", "--", file).decode().split():
            old = self._base_at(f"{commit}^", file)
            if old and old != self._base_at(commit, file) and not self._contains(old, commit):
                yield self._finding(file, "base", f"the comparison with {old!r}, with `base`")
                return

    def _base_at(self, commit: str, file: str) -> str | None:
        try:
            table = table_of(git.file_at(self.top, commit, file) or b"", self.top / file)
        except UsageError:
            return None
        value = table.get("base") if table else None
        return value if isinstance(value, str) else None

    def _contains(self, reference: str, commit: str) -> bool:
        try:
            return git.commit_of(self.top, commit) in compare.merge_bases(self.top, reference, commit)
        except UsageError:
            return False

    def _project_file(self, config: Config) -> str | None:
        if config.folder is None or not config.folder.is_relative_to(self.top):
            return None
        return relative(config.file, self.top)

    def _finding(self, path: str, at: str, what: str) -> Finding:
        try:
            lines = (self.top / path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            lines = []
        wanted = re.compile(rf"^\s*{at}\s*=" if at.isidentifier() else re.escape(at))
        line = next((number for number, text in enumerate(lines, 1) if wanted.search(text)), 1)
        return switched_off(path, line, 1, lines[line - 1] if at and lines else "", what)
