"""`.patch` and `.diff` files that change Megatron's source: one finding each, with the definitions that they touch."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.findings.finding import Finding, Related
from mcore_unpatch.library.build import read_module
from mcore_unpatch.megatron import api, known
from mcore_unpatch.megatron.versions import FOLDERS, LIBRARY
from mcore_unpatch.report.lines import count
from mcore_unpatch.repository import git
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.sources.diffs import FileDiff, read
from mcore_unpatch.scanner.sources.parsing import Unreadable
from mcore_unpatch.stacks.sources import MegatronSource

SHAPE = "patch-file"
_RULE = "MCU608"
_OF_MEGATRON = re.compile(rf"(?:^|(?P<above>[^/]*)/)(?P<file>megatron/(?P<folder>{'|'.join(FOLDERS)})/.+)$", re.DOTALL)
_WITHIN = re.compile(rf"^({'|'.join(FOLDERS)})/.+\.py$")  # of a diff that was made in the folder `megatron`
_NUMBERED = re.compile(r"(\d{4})-")
_TAKEN = re.compile(rb"\b([A-Za-z_]\w*)\s*[:=,)]")  # a field or a parameter
APPLIES = "applies"
DONE = "is in it already"
FAILS = "does not apply"


def findings_in(
    path: str, data: bytes, source: MegatronSource | None = None, before: Sequence[bytes] = ()
) -> list[Finding]:
    """The finding of a patch file, if it changes Megatron.

    `source` tells whether it still applies; `before` are the patch files that have to be applied first.
    """
    about = "egatron" in path or b"egatron" in data.replace(b"\0", b"")
    files = [(file, *names) for file in read(data) if any(names := _names(file, about))]
    if not files:
        return []
    fits: Counter[str] = Counter()
    touched: dict[str, int] = {}
    if source is not None:
        with tempfile.TemporaryDirectory(prefix="unpatch-") as folder:
            tree = _Scratch(Path(folder), source)
            for other in before:
                for file in read(other):
                    if any(names := _names(file)):
                        tree.apply(file, *names)
            for file, old, new in files:
                fit = tree.apply(file, old, new)
                fits[fit] += 1
                inner = [_placed(_module(new or old), name) for _, name in file.changes or [(0, "")]]
                touched |= dict.fromkeys(tree.changed(new) if fit == APPLIES and new else inner, file.line)
    else:
        for file, old, new in files:
            for number, name in file.changes or [(file.line, "")]:
                touched.setdefault(_placed(_module(new or old), name), number)
    part = "comments alone of " * _are_comments(line for file, *_ in files for line in file.text)
    what = f"changes {part}Megatron's source in {count(len({new or old for _, old, new in files}), 'file')}"
    return [_finding(path, data, what, touched, fits, source)]


def _are_comments(lines: Iterable[bytes]) -> bool:
    """Whether comments and empty lines are all that a diff changes."""
    changed = [
        line[1:].strip() for line in lines if line.startswith((b"+", b"-")) and not line.startswith((b"+++ ", b"--- "))
    ]
    return any(changed) and all(not line or line.startswith(b"#") for line in changed)


def brought(paths: Iterable[str], contents: Callable[[str], bytes]) -> dict[str, frozenset[str]]:
    """By module of Megatron's: names that patch files may add to what its functions and classes take."""
    found: dict[str, set[str]] = {}
    for path in paths:
        try:
            data = contents(path)
        except (OSError, Unreadable):
            continue
        for file in read(data) if b"egatron" in data or "egatron" in path else ():
            lines = [line for line in file.text if line.startswith(b"+") and not line.startswith(b"+++")]
            if lines and (name := _names(file, about=True)[1]):
                words = _TAKEN.findall(b"\n".join(lines))
                found.setdefault(_module(name), set()).update(word.decode() for word in words)
    return {module: frozenset(names) for module, names in found.items()}


def _names(file: FileDiff, about: bool = False) -> tuple[str, str]:
    """The file's names below the folder that holds `megatron`, before and after; empty for another file.

    about: the diff says Megatron, so that a file with the name of one of its modules is that.
    """
    old, new = (_below(name, about) for name in (file.old, file.new))
    return old, new


def _below(name: str, about: bool) -> str:
    if match := _OF_MEGATRON.search(name):
        # `x/backends/megatron/training/y.py` is another package's: no checkout, and no release has such a file.
        said = not match["above"] or "egatron" in match["above"] or not known.ever(f"megatron.{match['folder']}")
        return match["file"] if said or known.ever(_module(match["file"])) else ""
    inner = f"megatron/{name}"
    return inner if about and _WITHIN.match(name) and known.ever(_module(inner)) else ""


def _module(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def _placed(module: str, name: str) -> str:
    """The dotted name of a definition; a method whose class is out of sight belongs to the one class that has it."""
    if name and "." not in name and not api.in_module(module, name) and (owner := api.owner_in(module, name)):
        name = f"{owner}.{name}"
    return f"{module}.{name}" if name else module


class _Scratch:
    """The touched files of a source in a folder of their own, where `git apply` may change them."""

    def __init__(self, folder: Path, source: MegatronSource) -> None:
        self._folder, self._source = folder, source
        self._laid: set[str] = set()

    def apply(self, file: FileDiff, old: str, new: str) -> str:
        """Apply the diff of one file; how it fits."""
        for name in {old, new} - self._laid:
            if name in self._source.files:
                (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
                (self._folder / name).write_bytes(self._source.files[name])
            self._laid.add(name)
        patch = b"\n".join(_renamed(file, old, new)) + b"\n"
        options = ["-p1", "--whitespace=nowarn", "-"]
        if self._runs("apply", *options, stdin=patch):
            return APPLIES
        return DONE if self._runs("apply", "--reverse", "--check", *options, stdin=patch) else FAILS

    def changed(self, name: str) -> list[str]:
        """The definitions of a file that are not what the source has."""
        module, after = _module(name), self._folder / name
        if not name.endswith(".py") or not after.is_file():
            return [module]
        try:
            then = read_module(LIBRARY, name, after.read_bytes()).facts
            now = read_module(LIBRARY, name, self._source.files.get(name, b"")).facts
        except UsageError:
            return [module]
        other = [name for name in {**now, **then} if now.get(name) != then.get(name) and name != module]
        inner = [name for name in other if not any(rest.startswith(f"{name}.") for rest in other)]
        return inner or [module]

    def _runs(self, *arguments: str, stdin: bytes) -> bool:
        try:
            git.run(self._folder, *arguments, stdin=stdin, apart=True)
        except git.GitError:
            return False
        return True


def _renamed(file: FileDiff, old: str, new: str) -> Iterator[bytes]:
    """The lines of a diff with the names below the folder of `megatron`, behind `a/` and `b/` as git has them."""
    then, now = ((name or other).encode() for name, other in ((old, file.old), (new, file.new)))
    lines = {
        b"diff --git ": b"diff --git a/%b b/%b" % (then or now, now or then),
        b"--- ": b"--- a/" + then,
        b"+++ ": b"+++ b/" + now,
        b"rename from ": b"rename from " + then,
        b"rename to ": b"rename to " + now,
        b"copy from ": b"copy from " + then,
        b"copy to ": b"copy to " + now,
    }
    head = True
    for line in file.text:
        head = head and not line.startswith(b"@@")
        kind = next((kind for kind in lines if line.startswith(kind)), b"") if head else b""
        is_there = file.old if kind == b"--- " else file.new if kind == b"+++ " else True
        yield lines[kind] if kind and is_there else line


def _finding(
    path: str,
    data: bytes,
    what: str,
    touched: dict[str, int],
    fits: Counter[str],
    source: MegatronSource | None,
) -> Finding:
    names = sorted(touched, key=lambda name: (touched[name], name))
    label = source.label if source is not None else ""
    said = [f"{count(number, 'file')} {fit}" for fit, number in fits.items()]
    on = f"on megatron-core {label}: {', '.join(said)}" if said else ""
    failed = f"does not apply to megatron-core {label} ({fits[FAILS]} of {sum(fits.values())} files)"
    breaks = (failed,) if fits[FAILS] else ()
    done = f"megatron-core {label} has all of these changes, and nothing is left to apply" if [*fits] == [DONE] else ""
    does = what.partition(" in ")[0]
    kept = f"It {does}; whether it applies was not tried: `--target-mcore PATH` tells, of the source that it is for"
    if breaks:
        kept = f"It {breaks[0]}; if it is for that source, make it anew"  # each says what the file does
    elif source is not None:
        kept = f"It {does}, and applies to megatron-core {label}"
    return Finding(
        rule=_RULE,
        path=path,
        line=touched[names[0]],
        column=1,
        end_line=touched[names[0]],
        target=names[0],
        shape=SHAPE,
        message="; ".join(filter(None, [what, on])),
        related=tuple(Related(touched[name], "touches") for name in names[1:]),
        touches=tuple(names),
        in_test=is_test(path),
        breaks=breaks,
        effect="breaks" if breaks else "",
        upstream_has=done,
        kept_because=kept,
        source=data.split(b"\n")[touched[names[0]] - 1].decode(errors="replace").rstrip("\r"),
    )


def applied_before(path: str, patches: Sequence[str], series: bytes | None) -> list[str]:
    """The patch files of its folder that come before a patch file: by quilt's `series`, or by git's numbers."""
    folder, _, name = path.rpartition("/")
    beside = {one.rpartition("/")[2]: one for one in patches if one.rpartition("/")[0] == folder and one != path}
    listed = [line.split()[0] for line in (series or b"").decode(errors="replace").splitlines() if line.split()]
    if name in listed:
        return [beside[file] for file in listed[: listed.index(name)] if file in beside]
    number = _NUMBERED.match(name)
    earlier = (file for file in sorted(beside) if number and (other := _NUMBERED.match(file)) and other[1] < number[1])
    return [beside[file] for file in earlier]
