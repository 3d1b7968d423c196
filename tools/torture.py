"""Strike `unpatch migrate` and `unpatch undo` wherever it may hurt, feed the scanner garbage, and look at what is left.

    python tools/torture.py --seed 1              (make torture)

The real command, with its real codemods, on a copy of examples/tiny_rl in a git repository of its own:

signals   SIGINT, SIGTERM, SIGHUP and SIGKILL at random moments, half of them while files are being written
kills     SIGKILL just before a chosen file operation, which Python announces to audit hooks
full      from a chosen operation on, nothing more fits on the disk
pairs     two runs at the same time
files     real sources with bytes cut, doubled, swapped and thrown in: scanned, and a migration planned
growth    CPU time of each command with four times the files, and with four times the patches in a file, in percent

After every strike all files are old or all are new, or the next `undo` makes them so; nothing else lies about; and no
run says "internal error" or shows a traceback. The first thing found ends the run with exit code 1.
"""

from __future__ import annotations

import argparse
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from mcore_unpatch import cli
from mcore_unpatch.codemods import planner  # noqa: F401 - loaded once, before the forks
from mcore_unpatch.findings.rules import Selection
from mcore_unpatch.migrate import run as migration
from mcore_unpatch.repository import git
from mcore_unpatch.survey.scan import scan
from mcore_unpatch.survey.survey import ScanOptions

ROOT = Path(__file__).parents[1]
MIGRATE = ("migrate", "--unsafe-fixes", "--annotate")
UNDO = ("undo",)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
OPERATIONS = {"open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.chmod", "os.utime", "os.rmdir"}
NOT_BEGUN = 99  # the signal came before the command
BATCH = 40  # fuzzed files per scan

Contents = dict[str, bytes]
Hook = Callable[[str, tuple[object, ...]], None]


class Found(Exception):
    """Something that must not be."""


class Subject:
    """The repository, its files before a migration and after."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "repository"
        shutil.copytree(ROOT / "examples/tiny_rl", self.root)
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "all"]):
            subprocess.run(["git", *command], cwd=self.root, check=True)
        self.state = git.git_folder(self.root) / "mcore-unpatch"
        self.old = self.contents()
        started = time.monotonic()
        self.finish(self.start(MIGRATE))
        self.seconds = time.monotonic() - started
        self.new = self.contents()
        if self.new == self.old:
            raise Found("the sample has nothing to migrate")
        self.finish(self.start(UNDO))
        self.check("a first migration and its undo", killed=False)

    def contents(self) -> Contents:
        """Every file but git's own."""
        paths = (path for path in sorted(self.root.rglob("*")) if path.is_file() and ".git" not in path.parts)
        return {path.relative_to(self.root).as_posix(): path.read_bytes() for path in paths}

    def start(self, command: Sequence[str], hook: Hook | None = None) -> tuple[int, Path]:
        """The command in a process of its own, which an audit hook may watch; its number, and where it writes."""
        output = self.root.parent / f"output-{time.monotonic_ns()}"
        if pid := os.fork():
            return pid, output
        code = NOT_BEGUN
        try:
            handle = os.open(output, os.O_WRONLY | os.O_CREAT)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            os.chdir(self.root)
            sys.argv = ["unpatch", *command]
            if hook:
                sys.addaudithook(hook)
            cli.main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 98
            sys.stdout.flush()
        finally:
            os._exit(code)

    def finish(self, started: tuple[int, Path]) -> tuple[int, str]:
        """The wait status of a command, and what it said."""
        pid, output = started
        status = os.waitpid(pid, 0)[1]
        text = output.read_text(errors="replace") if output.exists() else ""
        output.unlink(missing_ok=True)
        if "Traceback" in text or "internal error" in text:
            raise Found(text)
        return status, text

    def check(self, what: str, killed: bool) -> str:
        """All old or all new, at once or after `undo`; and old again in the end."""
        left = self.contents()
        result = "old" if left == self.old else "new" if left == self.new else "mixed"
        if result == "mixed" and not killed:
            raise Found(f"{what}: half done")
        told = ""
        if result != "old" or self.state.exists():
            told = self.finish(self.start(UNDO))[1]
        if self.contents() != self.old:
            changed = [name for name in {*left, *self.old} if self.contents().get(name) != self.old.get(name)]
            raise Found(f"{what}: {result}, and `undo` left {changed}: {told}")
        return result


def signals(subject: Subject, dice: random.Random, count: int) -> Counter[str]:
    """Signals at random moments."""
    results: Counter[str] = Counter()
    for number in range(count):
        command = dice.choice((MIGRATE, UNDO))
        if command == UNDO:
            subject.finish(subject.start(MIGRATE))
        kind = dice.choice(SIGNALS)
        known = set(subject.state.glob("*")) if subject.state.exists() else set()
        started = subject.start(command)
        if dice.random() < 0.5:
            time.sleep(dice.uniform(0, 1.1 * subject.seconds))
        else:
            end = time.monotonic() + 3 * subject.seconds
            while time.monotonic() < end and not set(subject.state.glob("*")) - known:
                time.sleep(0.0005)
            time.sleep(dice.uniform(0, 0.03))
        os.kill(started[0], kind)
        status, text = subject.finish(started)
        code = os.waitstatus_to_exitcode(status)
        result = subject.check(f"signal {number}, {kind.name} in {command[0]}", killed=code < 0)
        done = result == ("new" if command == MIGRATE else "old")
        if (code == 0 and not done) or (code == 130 and done and command == MIGRATE):
            raise Found(f"signal {number}, {kind.name} in {command[0]}: exit code {code} and {result}: {text}")
        results[f"{kind.name} {_ended(code)}, {result}"] += 1
    return results


def _ended(code: int) -> str:
    return "died" if code < 0 else "before it began" if code == NOT_BEGUN else f"exit code {code}"


def _strikes(how: str, number: int, told: int) -> Hook:
    """Strikes at the n-th operation, and says so to a pipe just before."""
    seen = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event not in OPERATIONS or not any("mcore-unpatch" in str(a) or ".unpatch-" in str(a) for a in arguments):
            return
        if how == "full" and event == "open" and not (isinstance(arguments[2], int) and arguments[2] & os.O_CREAT):
            return
        if how == "full" and event not in ("open", "os.mkdir", "os.link"):
            return
        seen += 1
        if seen == number:
            os.write(told, f"{event} ".encode())
        if how == "full" and seen >= number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if how == "kill" and seen == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


def operations(subject: Subject, dice: random.Random, count: int, how: str) -> Counter[str]:
    """Strikes at chosen file operations on the state and beside the files: more, if chance left a kind of them out."""
    results: Counter[str] = Counter()
    wanted = {"struck at open", "struck at os.link"} | ({"struck at os.rename"} if how == "kill" else set())
    wanted = wanted if count >= 40 else set()
    listening, telling = os.pipe()
    os.set_blocking(listening, False)
    for number in range(3 * count):
        if number >= count and wanted <= set(results):
            break
        command = dice.choice((MIGRATE, UNDO))
        if command == UNDO:
            subject.finish(subject.start(MIGRATE))
        place = dice.randint(1, 70 if how == "kill" else 40)
        status, text = subject.finish(subject.start(command, _strikes(how, place, telling)))
        code = os.waitstatus_to_exitcode(status)
        if how == "full" and code not in (0, 2):
            raise Found(f"full disk {number} in {command[0]}: exit code {code}: {text}")
        result = subject.check(f"{how} {number} at operation {place} of {command[0]}", killed=code < 0)
        results[f"{_ended(code)}, {result}"] += 1
        with suppress(BlockingIOError):
            results.update(f"struck at {event}" for event in os.read(listening, 1000).decode().split())
    os.close(telling)
    os.close(listening)
    if count and not (wanted <= set(results) and any(what.startswith("struck") for what in results)):
        raise Found(f"{how}: nothing was struck at {sorted(wanted - set(results))}")
    return results


def pairs(subject: Subject, dice: random.Random, count: int) -> Counter[str]:
    """Two runs at once: one at a time writes, and the other says so or finds nothing to do."""
    results: Counter[str] = Counter()
    for number in range(count):
        first = subject.start(MIGRATE)
        time.sleep(dice.uniform(0, subject.seconds))
        second = subject.start(dice.choice((MIGRATE, UNDO)))
        ends = [subject.finish(one) for one in (first, second)]
        for status, text in ends:
            if os.waitstatus_to_exitcode(status) not in (0, 2):
                raise Found(f"pair {number}: {text}")
        codes = sorted(os.waitstatus_to_exitcode(status) for status, _ in ends)
        results[f"{codes}, {subject.check(f'pair {number}', killed=False)}"] += 1
    return results


def _fuzzed(data: bytes, dice: random.Random) -> bytes:
    """Lines moved about, so that many files still parse; or bytes, so that few do."""
    if dice.random() < 0.6:
        lines = data.splitlines(keepends=True) or [b"\n"]
        for _ in range(dice.randint(1, 3)):
            one, other = (dice.randrange(len(lines)) for _ in range(2))
            move = dice.randrange(5)
            if move == 0:
                lines[one], lines[other] = lines[other], lines[one]
            elif move == 1:
                lines[one] *= 2
            elif move == 2:
                lines[one] = lines[one].rstrip(b"\n") + b"\r\r\n"
            elif move == 3:
                lines.insert(
                    one, dice.choice((b"return\n", b"# unpatch: ignore\n", b"\f\n", b"x = (\n1)\n", b"if 1: pass\n"))
                )
            elif len(lines) > 1:
                del lines[one]
        return b"".join(lines)
    for _ in range(dice.randint(1, 6)):
        start = dice.randint(0, len(data))
        end = min(len(data), start + dice.choice((0, 1, 4, 30, 400)))
        piece = data[start:end]
        new = dice.choice(
            (
                b"",
                piece * 2,
                piece[::-1],
                dice.randbytes(dice.randint(1, 12)),
                dice.choice(
                    (b"\0", b"\r\r\n", b"\f", b"\xff\xfe", b"\xe2\x80\xa8", b"(" * 300, b"\t", b"\\\n", b"'''")
                ),
                dice.choice((b"# coding: rot13\n", b"return\n", b"yield\n", b"# unpatch: ignore\n", b"nonlocal x\n")),
            )
        )
        data = data[:start] + new + data[end:]
    return data


def files(subject: Subject, dice: random.Random, count: int) -> Counter[str]:
    """Fuzzed sources: scanned, and a migration of them planned."""
    folders = [ROOT / "examples", ROOT / "tests/migrate/codemods/golden"]
    sources = [path.read_bytes() for folder in folders for path in sorted(folder.rglob("*.py"))]
    results: Counter[str] = Counter()
    options = ScanOptions(selection=Selection.parse(["ALL"], []), jobs=1)
    for first in range(0, count, BATCH):
        folder = Path(tempfile.mkdtemp(dir=subject.root.parent))
        for number in range(first, min(first + BATCH, count)):
            (folder / f"m{number}.py").write_bytes(_fuzzed(dice.choice(sources), dice))
        try:
            report = scan([folder], options)
            results["findings"] += len(report.findings)
            results["files told as errors"] += len(report.errors)
            results["files"] += report.files_scanned
            outcome = migration.preview(migration.Request([folder], options, unsafe_fixes=True, annotate=True))
            results["files planned to change"] += len(outcome.rewrites)
        except Exception as error:
            kept = Path(tempfile.mkdtemp(prefix="torture-")) / "files"
            shutil.copytree(folder, kept)
            raise Found(f"{kept}: {''.join(traceback.format_exception(error))}") from None
        shutil.rmtree(folder)
    return results


def growth(subject: Subject, _: random.Random, count: int) -> Counter[str]:
    """CPU time of each command, in percent, with four times the files and with four times the patches in a file."""
    head = "from megatron.core.models.gpt import GPTModel\n"
    one = "def f{0}(self, x):\n    return x\nGPTModel.f{0} = f{0}\n"
    results: Counter[str] = Counter()
    for what in ("files", "patches"):
        for command in (("check", "--no-cache"), ("scan", "--no-cache"), ("migrate", "--diff", "--allow-no-vcs")):
            taken = []
            for amount in (count, 4 * count):
                folder = Path(tempfile.mkdtemp(dir=subject.root.parent))
                sources = [one.format(number) for number in range(amount)]
                files = sources if what == "files" else ["".join(sources)]
                for number, source in enumerate(files):
                    (folder / f"m{number}.py").write_text(head + source)
                before = os.times()
                call = [sys.executable, "-P", "-m", "mcore_unpatch", *command, "--jobs", "1", str(folder)]
                subprocess.run(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, check=False)
                after = os.times()
                taken.append(after.children_user - before.children_user)
                shutil.rmtree(folder)
            results[f"{command[0]}, four times the {what}"] = round(100 * taken[1] / taken[0])
    return results


def main() -> None:
    """Everything, in order; figures on stdout."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    amounts = {"signals": 203, "kills": 81, "full": 40, "pairs": 20, "files": 14_360, "growth": 400}
    for name, amount in amounts.items():
        parser.add_argument(f"--{name}", type=int, default=amount)
    given = parser.parse_args()
    runs: dict[str, Callable[[Subject, random.Random, int], Counter[str]]] = {
        "signals": signals,
        "kills": lambda *a: operations(*a, how="kill"),
        "full": lambda *a: operations(*a, how="full"),
        "pairs": pairs,
        "files": files,
        "growth": growth,
    }
    with tempfile.TemporaryDirectory() as folder:
        subject = Subject(Path(folder))
        for name, run in runs.items():
            started = time.monotonic()
            try:
                results = run(subject, random.Random(f"{given.seed} {name}"), getattr(given, name))
            except Found as found:
                print(f"{name}, seed {given.seed}: {found}", file=sys.stderr)
                raise SystemExit(1) from found
            figures = "; ".join(f"{what}: {number}" for what, number in sorted(results.items()))
            print(f"{name} {getattr(given, name)}, {time.monotonic() - started:.0f} s. {figures}", flush=True)


if __name__ == "__main__":
    main()
