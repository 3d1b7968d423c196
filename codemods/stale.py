"""What edits leave for people: texts that still speak of a patch which is gone, and code that nobody calls any more."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from textwrap import wrap

from mcore_unpatch.codemods.changes import Asked, Insert, Reason, Remove
from mcore_unpatch.codemods.syntax import leaf, names_in
from mcore_unpatch.codemods.workbench import Contribution, Workbench
from mcore_unpatch.editing.edits import Edit, Options, Remark, as_name, splice
from mcore_unpatch.editing.source import Function, Source, first_line, lines_of
from mcore_unpatch.findings.finding import OWN_MODELS, Finding
from mcore_unpatch.findings.rules import find
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.parsing import Unreadable

_PATCHING = re.compile(r"patch|wrap|monkey|replac|overrid", re.IGNORECASE)
# What a test looks at that is another thing after a rewrite, by the rule of the patch.
_LOOKED_AT = {
    "MCU403": "this looks at `forward` itself, which a hook does not change: adapt the test",
    "MCU501": "this looks at `output_layer`: `add_value_head` raises for a model that is a fake, so adapt such a test",
}
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
MARK = "TODO(mcore-unpatch)"


def left_behind(
    bench: Workbench, findings: Sequence[Finding], gone: Sequence[Finding], edits: Sequence[Edit]
) -> Iterator[Remark]:
    """A remark for each text, and for each function or class, that is of no more use once all edits are made."""
    by_path: defaultdict[str, list[Edit]] = defaultdict(list)
    for edit in edits:
        by_path[edit.path].append(edit)
    bench.look_for(*(as_name(word) for one in gone if one.path in by_path and (word := _word_of_tests(one))))
    for path in {finding.path: None for finding in gone if finding.path in by_path}:
        # Texts about a model of one's own stay true.
        here = [one for one in gone if one.path == path and "." in one.target and one.shape not in OWN_MODELS]
        staying = [finding for finding in findings if finding.path == path and finding not in gone]
        ends = ([1 + bench.data(path).count(b"\n", 0, end) for end in (edit.start, edit.end)] for edit in by_path[path])
        changed = {line for first, last in ends for line in range(first, last)}
        yield from _texts(bench.source(path), here, staying, changed)
        for finding in here:
            yield from _tests(bench, finding) if finding.verdict == "delete" else _tests_of_rewritten(bench, finding)
    yield from _orphans(bench, by_path)


def _texts(source: Source, gone: Sequence[Finding], staying: Sequence[Finding], changed: set[int]) -> Iterator[Remark]:
    """Comments, docstrings and messages that name what was patched: a person has to read what they say now."""
    lines = [number for number in range(1, len(source.lines) + 1) if source.is_comment(number)]
    for node in source.every(ast.Constant):
        if isinstance(node.value, str) and " " in node.value:
            lines += range(node.lineno, (node.end_lineno or node.lineno) + 1)
    patched = {part for finding in staying for part in finding.target.split(".")[-2:]}
    told = set(changed)
    for finding in gone:
        owner, name = finding.target.split(".")[-2:]
        # A word of many meanings, such as `forward`, is meant only in the function that patches it.
        common, kind = "_" not in name.strip("_"), re.sub(r"^(_?(?:set|get)_|)", "", name)
        functions = map(lines_of, source.every(ast.FunctionDef, ast.AsyncFunctionDef))
        around = {line for whole in functions if finding.line in whole for line in whole}
        words = {kind: r"\b", owner: r"\b", name: r"(?<![\w.])" if common else r"\b"}
        for number in sorted(set(lines) - told):
            line = source.line(number)
            said = {word for word, edge in words.items() if re.search(rf"{edge}{word}\b", line)} - patched
            meant = said if not common or number in around else said & {owner}
            deleted = name in meant and not common and finding.verdict == "delete"
            if meant and (deleted or _PATCHING.search(line)):
                told.add(number)
                text = f"this text still speaks of the patch of `{owner}.{name}`, which is gone"
                yield Remark(source.path, number, finding.rule, "by-hand", text)


def _word_of_tests(gone: Finding) -> str:
    """What a test of a patch says that is gone: the name, unless it has many meanings, or what installed it."""
    if gone.verdict == "delete":
        name = gone.target.rpartition(".")[2]
        return name if "_" in name.strip("_") else ""
    return gone.scope.partition(".")[0] if gone.rule in _LOOKED_AT else ""


def _tests(bench: Workbench, gone: Finding) -> Iterator[Remark]:
    """Tests that speak of what was patched and of the file that did it."""
    name, stem = _word_of_tests(gone), PurePosixPath(gone.path).stem.encode()
    for source in bench.sources_saying(as_name(name)) if name else ():
        if is_test(source.path) and stem in source.data:
            said = re.compile(rb"\b%b\b" % name.encode())
            line = next(number for number, text in enumerate(source.lines, 1) if said.search(text))
            yield Remark(source.path, line, gone.rule, "by-hand", f"this may test the patch of `{name}`, which is gone")


def _tests_of_rewritten(bench: Workbench, gone: Finding) -> Iterator[Remark]:
    """Tests that speak of what installed a patch and look at the attribute that it set, which is no longer enough."""
    installer, name = _word_of_tests(gone), gone.target.rpartition(".")[2]
    for source in bench.sources_saying(as_name(installer)) if installer else ():
        reads = [read for read in source.every(ast.Attribute) if read.attr == name and isinstance(read.ctx, ast.Load)]
        reads = [read for read in reads if _is_object(read.value)] if is_test(source.path) else []
        read = next((read for read in reads if _is_after(source, installer, read)), None)
        if read is not None:
            yield Remark(source.path, read.lineno, gone.rule, "by-hand", _LOOKED_AT[gone.rule])


def _is_object(node: ast.expr) -> bool:
    """Whether an expression is no class, as `type(x)` and `Name` are."""
    return not isinstance(node, ast.Call) and not getattr(node, "id", "").lstrip("_")[:1].isupper()


def _is_after(source: Source, installer: str, read: ast.expr) -> bool:
    """Whether what a test reads may have been patched: its function speaks of the installer, or of one that does."""
    functions = [one for one in source.every(ast.FunctionDef, ast.AsyncFunctionDef) if isinstance(one, Function)]
    words = {id(one): {leaf(node) for node in walk(one) if isinstance(node, ast.expr)} for one in functions}
    words |= {id(one): words[id(one)] | {arg.arg for arg in one.args.args} for one in functions}  # fixtures
    around = [function for function in functions if read.lineno in lines_of(function)]
    saying = {installer, *(function.name for function in functions if installer in words[id(function)])}
    return not around or any(saying & words[id(function)] for function in around)


def _orphans(bench: Workbench, edits: dict[str, list[Edit]]) -> Iterator[Remark]:
    """Functions and classes that only code which is gone asked for, and those that only these ask for, and so on."""
    new = {path: Source(path, splice(bench.data(path), some)) for path, some in edits.items()}
    idle: defaultdict[str, set[str]] = defaultdict(set)  # by path, the names of the definitions that nobody uses
    waiting = [
        (source.path, names_in(bench.source(path).tree) - names_in(source.tree), edits[path][0].rule)
        for path, source in new.items()
    ]
    asked = [one for path, lost, _ in waiting for one in _defined(bench, path, lost) if not is_test(one[0].path)]
    staying = (node.name for where, node in asked if _definition(new.get(where.path, where), node.name))
    bench.look_for(*map(as_name, staying))
    while waiting:
        path, lost, rule = waiting.pop(0)
        for where, node in _defined(bench, path, lost):
            if node.name in idle[where.path] or is_test(where.path):
                continue
            now = new.get(where.path, where)
            if _definition(now, node.name) and not _is_named(bench, new, where.path, node.name, idle):
                idle[where.path].add(node.name)
                waiting.append((where.path, names_in(node), rule))
                tested = next((source.path for source in bench.sources_naming(node.name) if is_test(source.path)), "")
                who = f"nothing here but tests ({tested}) uses" if tested else "nothing here uses"
                text = f"{who} `{node.name}` any more: delete it, unless code elsewhere does"
                yield Remark(where.path, node.lineno, rule, "guard", text)


def _definition(source: Source, name: str) -> _Definition | None:
    return next((item for item in source.tree.body if isinstance(item, _Definition) and item.name == name), None)


def _defined(bench: Workbench, path: str, names: set[str]) -> Iterator[tuple[Source, _Definition]]:
    """Where names of a file are defined: there, or in another file of the repository."""
    source = bench.source(path)
    homes = {name: (source, name) for name in names}
    for statement in source.every(ast.ImportFrom):
        for alias in statement.names:
            if (alias.asname or alias.name) in names:
                origin = bench.locate(path, statement.module or "", statement.level)
                if origin and (other := bench.readable(origin)):
                    homes[alias.asname or alias.name] = (other, alias.name)
    for where, name in homes.values():
        if node := _definition(where, name):
            yield where, node


def _is_named(bench: Workbench, new: dict[str, Source], path: str, name: str, idle: dict[str, set[str]]) -> bool:
    """Whether code that stays, tests and what nobody uses left out, says a name by more than an import."""
    try:
        saying = list(bench.sources_naming(name))
    except (Unreadable, OSError):
        return True  # what cannot be read may ask for it
    # A file that is changed may say it from now on.
    for source in {**{before.path: before for before in saying}, **new}.values():
        unused = [definition for each in idle.get(source.path, ()) if (definition := _definition(source, each))]
        own = _definition(source, name) if source.path == path else None
        left_out = [*unused, *([own] if own else []), *source.every(ast.Import, ast.ImportFrom)]
        inside = {id(node) for part in left_out for node in walk(part)}
        if not is_test(source.path) and any(id(node) not in inside for node in source.mentions.get(name, ())):
            return True
    return False


def annotate(bench: Workbench, findings: Sequence[Finding], options: Options, taken: Sequence[Asked]) -> Contribution:
    """A comment for each finding, if comments are asked for."""
    contribution = Contribution()
    done: set[tuple[str, int, str]] = set()
    for finding in findings if options.annotate else ():
        source = bench.readable(finding.path) if finding.path in bench.editable else None
        if finding.seam == "none" or source is None:
            continue
        statement = _statement(source, finding)
        line = first_line(statement)
        start = source.line_span(line, line).start
        if (finding.path, line, finding.rule) in done or _is_annotated(source, statement, finding.rule):
            continue
        done.add((finding.path, line, finding.rule))
        if not any(asked.path == finding.path and _takes(asked, start) for asked in taken):
            text = _comment(finding, len(source.indentation(statement)))
            reason = Reason(finding.rule, "safe", f"a comment on {finding.rule}", finding_line=finding.line)
            contribution.asked.append(Asked(source, Insert(statement, line, text), reason))
    return contribution


def _takes(asked: Asked, start: int) -> bool:
    """Whether a change takes away the line that begins there."""
    first, last = asked.touches
    return first < start < last or (isinstance(asked.change, Remove) and first <= start < last)


def _comment(finding: Finding, indent: int) -> str:
    """The rule, what to do, and on a line of its own where to read on."""
    rule = find(finding.rule)
    advice = f"{MARK}: {rule.code} {finding.replacement or rule.summary}"
    lines = [
        *wrap(advice, 86 - indent, subsequent_indent="  ", break_long_words=False),
        *([f"  {rule.link}"] if rule.link else []),
    ]
    return "\n".join(f"# {line}" for line in lines)


def _statement(source: Source, finding: Finding) -> ast.stmt:
    """The innermost statement of a finding that begins its own line."""
    around = [node for node in source.every(ast.stmt) if finding.line in lines_of(node)]
    own_line = (node for node in around if not source.line(first_line(node))[: node.col_offset].strip())
    return max(own_line, key=first_line)


def _is_annotated(source: Source, statement: ast.stmt, rule: str) -> bool:
    line = first_line(statement) - 1
    while line >= 1 and source.is_comment(line):
        if f"{MARK}: {rule}" in source.line(line):
            return True
        line -= 1
    return False
