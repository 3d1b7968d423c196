"""A patch of a class that specs name: whether a subclass can take its place, and what that is."""

from __future__ import annotations

import ast
import builtins
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from mcore_unpatch.codemods.changes import Rewrite, below
from mcore_unpatch.codemods.codemod import (
    AddImport,
    Fix,
    Situation,
)
from mcore_unpatch.codemods.emptied import Emptied, with_emptied
from mcore_unpatch.codemods.imports.editor import under_a_guard
from mcore_unpatch.codemods.imports.places import Import
from mcore_unpatch.codemods.layout import line_limit
from mcore_unpatch.codemods.making import is_for_checkers
from mcore_unpatch.codemods.seams.patch import is_taken
from mcore_unpatch.codemods.seams.specs.places import SpecPlaces, leaf_of, releases_for, why_not
from mcore_unpatch.codemods.seams.specs.reach import (
    bound_to,
    calls_to,
    imports_back,
    imports_of,
    is_free,
    is_main,
    module_for,
    on_condition,
    runs_late,
)
from mcore_unpatch.codemods.syntax import bound_in, identifiers, imported, is_name, leaf, names_in, parameters
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.source import Function, Source, Span, last_line
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.library.syntax import dotted
from mcore_unpatch.megatron import slots

WITH = "with_classes"
_DEFINITIONS = Import | ast.FunctionDef | ast.ClassDef
# What gives the same whenever it is called.
_STEADY = (
    "wraps",
    "partial",
    "partialmethod",
    "staticmethod",
    "classmethod",
    "property",
    "no_grad",
    "compile",
    "disable",
)


@dataclass(frozen=True)
class Part:
    """`owner.name = value`."""

    statement: ast.stmt
    owner: ast.expr
    name: str
    value: ast.expr


@dataclass
class ClassPatch:
    """A class of Megatron's, and another that specs name in its place."""

    situation: Situation
    cls: str
    module: str  # where only the name is another
    findings: list[Finding]
    why_not: str = ""
    parts: list[Part] = field(default_factory=list)
    installer: ast.FunctionDef | None = None
    places: SpecPlaces = None  # type: ignore[assignment]
    name: str = ""  # of the class that comes, or is there
    home: Source = None  # type: ignore[assignment]  # where that is
    source: Source = None  # type: ignore[assignment]  # where the patch is

    @property
    def short(self) -> str:
        """The name of the class alone."""
        return leaf_of(self.cls)

    @property
    def bench(self) -> Workbench:
        """The files of the plan."""
        return self.situation.files

    @property
    def owner(self) -> str:
        """Megatron's class, as the patch names it."""
        return dotted(self.parts[0].owner)

    # --- whether ----------------------------------------------------------------------------------------------

    def reasons(self) -> Iterator[str]:
        """Why it is left; the first that there is counts."""
        yield from self._found()
        yield from self._form()
        yield from self._swapped() if self.module else self._methods()
        releases = releases_for(self.situation.options.judged(self.source.path))
        methods = [part.name for part in self.parts] if not self.module else []
        if because := why_not(self.bench, self.cls, methods, releases):
            yield because
        heirs = sorted({leaf_of(heir) for release in releases for heir in release.derived.get(self.cls, ())})
        self.places = SpecPlaces(self.bench, self.cls, self.module)
        yield from self.places.find_made(heirs)
        statements = [part.statement for part in self.parts]
        yield from self.places.find_named(self.source, statements, methods, self.installer)
        if heir := next((one for one in heirs for _ in self.bench.sources_naming(one) if not self.module), ""):
            yield f"this repository names `{heir}`, which derives from `{self.short}`"
        yield from self._always()
        yield from self._reach()

    def _found(self) -> Iterator[str]:
        """What is said of the patch, and of others."""
        if any("megatron/core/" in path for path in self.bench.paths):
            yield "this repository has a megatron.core of its own, which makes specs"
        if any(finding.in_test for finding in self.findings):
            yield "a test patches it"
        if len({finding.path for finding in self.findings}) > 1:
            yield f"several files change `{self.short}`"
        for finding in self.findings:
            if finding.temporary:
                yield f"line {finding.line} patches only for a while"
            if finding.confidence != "certain":
                yield f"which class line {finding.line} changes is not certain"
            if finding.live.depends or finding.live.guards:
                yield f"line {finding.line} patches only on a condition"
            if any(related.role == "restore" for related in finding.related):
                yield f"what line {finding.line} replaces is put back later"
            if finding.effect in ("breaks", "may_break"):
                yield f"what line {finding.line} puts in place breaks on a release that is judged for: mend it first"
        targets = {finding.target for finding in self.findings}
        makers = {leaf_of(maker) for maker in slots.makers()}
        for other in self._others:
            if other.target in targets or (leaf_of(other.target) in makers and not other.in_test):
                yield f"{other.path}:{other.line} patches `{leaf_of(other.target)}` too"
        source = self.bench.readable(self.findings[0].path)
        if source is None or len(targets) < len(self.findings):
            yield f"`{self.short}` is changed in several ways"
        self.source = self.home = source  # type: ignore[assignment]

    @property
    def _others(self) -> list[Finding]:
        every = (*self.situation.open, *self.situation.staying.findings)
        return [one for one in every if one not in self.findings]

    def _form(self) -> Iterator[str]:
        """Whether the patch is written in a way that is known."""
        source = self.source
        for finding in self.findings:
            statement = source.starting.get((finding.line, finding.column - 1))
            match statement:
                case ast.Assign([ast.Attribute(owner, name)], value):
                    self.parts.append(Part(statement, owner, name, value))
                case ast.Expr(ast.Call(ast.Name("setattr"), [owner, ast.Constant(str(name)), value], [])):
                    self.parts.append(Part(statement, owner, name, value))
                case _:
                    yield f"line {finding.line} is not a plain assignment"
        around = source.function_of(self.parts[0].statement)
        suite = around.body if around else source.tree.body
        if any(source.home[id(part.statement)] is not suite for part in self.parts):
            yield "the patch has to stand in one function, or at the top of one module, and in no branch"
        if around and (
            around not in source.tree.body or not isinstance(around, ast.FunctionDef) or around.decorator_list
        ):
            yield f"`{around.name}` is not a plain function of the module"
        self.installer = around if isinstance(around, ast.FunctionDef) else None

    def _methods(self) -> Iterator[str]:
        """Whether a class can have the methods, where it is to stand."""
        self.name, around = f"Patched{self.short}", self.installer
        if not is_free(self.source, self.name):
            yield f"the name `{self.name}` is taken"
        root = self.owner.partition(".")[0]
        if around and not self._import_inside and not isinstance(self._binding(root), Import):
            yield f"`{root}` is not plainly imported at the top of {self.source.path}: import it there"
        if self._import_inside and under_a_guard(self.source) not in (None, self.source.tree.body):
            yield f"{self.source.path} imports Megatron under a guard, where a class cannot stand"
        for at, node in imports_of(self.bench, self.source.path) if around and self._import_inside else ():
            others = [alias.name for alias in node.names] != [around.name]  # type: ignore[union-attr]
            if others and not any(full.startswith("megatron.") for full in imported(at).values()):
                yield f"{at.path} imports {self.source.path}, and may do without Megatron"
        for number, part in enumerate(self.parts):
            line, function = part.statement.lineno, self.inner.get(leaf(part.value))
            now = self._now(part)
            before = {other.name for other in self.parts[:number]}  # names of the class by then
            if any(
                names_in(node) & before or any(isinstance(one, ast.NamedExpr) for one in ast.walk(node)) for node in now
            ):
                yield f"line {line} reads what an earlier line puts on the class"
            if around is None:
                continue
            used = identifiers(function or part.value) - {leaf(part.value) if function else "", root}
            if taken := sorted(used & self._locals.keys() - self._kept_in(function)):
                yield f"line {line} uses `{taken[0]}` of `{around.name}`, which a class of the module does not see"
            for name in (name for node in now for name in self._unsteady(node)):
                yield f"line {line} asks for `{name}` when `{around.name}` is called: by then it may be another"
        named = (_names_of(node) for node in ast.walk(ast.parse(self.text)))
        if private := next((name for name in named if name.startswith("__") and not name.endswith("__")), ""):
            yield f"`{private}` means another name inside of a class"

    @cached_property
    def _locals(self) -> Counter[str]:
        """The names of the installer's own, and how often it binds each."""
        if not (around := self.installer):
            return Counter()
        return sum(map(_bound, around.body), Counter(parameters(around)))

    @cached_property
    def inner(self) -> dict[str, ast.FunctionDef]:
        """Functions inside of the installer that a part names, and nothing else: they become methods."""
        body = self.installer.body if self.installer else []
        said = Counter(node.id for one in body for node in ast.walk(one) if isinstance(node, ast.Name))
        functions = [node for node in body if isinstance(node, ast.FunctionDef) and self._locals[node.name] == 1]
        return {
            node.name: node
            for node in functions
            if said[node.name] == 1 and any(is_name(part.value, node.name) for part in self.parts)
        }

    @cached_property
    def _backups(self) -> dict[str, str]:
        """The locals that hold what the class has: `original = Class.method`."""
        found: dict[str, str] = {}
        for node in self.installer.body if self.installer else ():
            match node:
                case ast.Assign([ast.Name(name)], ast.Attribute(owner, _) as value) if dotted(owner) == self.owner:
                    found[name] = self.source.text(value)
        shared = [name for node in ast.walk(self.source.tree) if isinstance(node, ast.Global) for name in node.names]
        return {name: text for name, text in found.items() if self._locals[name] == 1 and name not in shared}

    def _kept_in(self, function: Function | None) -> set[str]:
        """The backups that a method asks its class for: it has nothing else of that name."""
        return set(self._backups) - {*bound_in(ast.walk(function))} if function else set()

    @cached_property
    def _import_inside(self) -> str:
        """The module that only the installer imports the class from."""
        for node in self.installer.body if self.installer else ():
            if isinstance(node, ast.ImportFrom) and not node.level:
                if any(alias.name == self.owner and not alias.asname for alias in node.names):
                    return node.module or ""
        return ""

    def _unsteady(self, code: ast.expr) -> Iterator[str]:
        """What an expression asks for that may change until the installer is called."""
        for node in ast.walk(code):
            if isinstance(node, ast.Call) and leaf(node.func) not in _STEADY:
                yield leaf(node.func)
            elif isinstance(node, ast.Name) and node.id not in self._backups:
                if self._binding(node.id) is None and not hasattr(builtins, node.id):
                    yield node.id
            elif isinstance(node, ast.Attribute) and node is not code and leaf(node) not in _STEADY:
                full = imported(self.source).get(dotted(node).partition(".")[0], "")
                own = self.bench.locate(self.source.path, full.partition(".")[0], 0) if full else None
                if own and self.source.text(node) not in self._backups.values():
                    yield dotted(node)

    def _binding(self, name: str) -> ast.stmt | None:
        """The statement that gives a name of the module its only value, as far as that is plain."""
        first = _only_binding(self.source, name)
        plain = isinstance(first, ast.Assign) and isinstance(first.value, ast.Name | ast.Attribute)
        return first if plain or isinstance(first, _DEFINITIONS) else None

    def _swapped(self) -> Iterator[str]:
        """A subclass of the repository's own."""
        value = self.parts[0].value
        for node in self.source.tree.body:
            if isinstance(node, ast.ImportFrom) and any(
                is_name(value, one.name) and not one.asname for one in node.names
            ):
                path = self.bench.locate(self.source.path, node.module or "", node.level)
                self.home = (self.bench.readable(path) if path else None) or self.home
        at = _only_binding(self.home, value.id) if isinstance(value, ast.Name) else None
        if not isinstance(at, ast.ClassDef) or bound_to(self.home, self.cls, at) not in map(leaf, at.bases):
            yield f"`{ast.unparse(value)}` is no subclass of `{self.short}` that a file of this repository defines"
        self.name = leaf(value)

    def _always(self) -> Iterator[str]:
        """Whether what makes the patch runs in any case."""
        around = self.installer
        leads = calls_to(self.bench, self.source, around) if around else imports_of(self.bench, self.source.path)
        leading = [*leads]
        what = f"call of `{around.name}`" if around else f"import of {self.source.path}"
        if not leading and (around or any(at is not self.source for at, _ in self.places.every)):
            yield f"no {what} was found"
        for at, statement in [*leading, *((self.source, part.statement) for part in self.parts if around)]:
            if where := on_condition(self.bench, at, statement, [around] if around else []):
                yield f"the patch is made only if {where} is reached"
        if why := gone_with(self.bench, [self]).why_not:
            yield why

    def _reach(self) -> Iterator[str]:
        """Whether every place can see the class."""
        if not self.places.every:
            yield f"no spec that names `{self.short}` was found in this repository"
        gone = gone_with(self.bench, [self]).statements.get(self.home, set()) | {part.statement for part in self.parts}
        acting = (node for node in self.home.tree.body if node not in gone and _acts(node))
        acts = next(acting, None)
        for at in {id(at): at for at, _ in self.places.every}.values():
            if at.path not in self.bench.editable:
                yield f"{at.path} {self.bench.not_editable(at.path)}"
            if at is not self.home:
                if not module_for(self.bench, self.home.path, at):
                    yield f"how {at.path} can import {self.home.path} is not known"
                if imports_back(self.bench, self.home.path, at.path):
                    yield f"{self.home.path} imports {at.path}, which would have to import it"
                if not is_free(at, self.name) and not self.is_there(at):
                    yield f"the name `{self.name}` is taken in {at.path}"
                if acts and all(other is not at for other, _ in imports_of(self.bench, self.home.path)):
                    yield f"{at.path} would have to import {self.home.path}, where line {acts.lineno} then runs too"
        for at, call in self.places.made:
            taken = [WITH] if is_taken(WITH, at) else []
            taken += [self.short] if not bound_to(at, self.cls, call) and not is_free(at, self.short) else []
            yield from (f"the name `{name}` is taken in {at.path}" for name in taken)
        for at, node in self.places.every:
            imports = [last_line(one) for one in at.tree.body if isinstance(one, Import)]
            there = self._line if at is self.home else max(imports, default=0)
            early = [one for one in at.tree.body if last_line(one) < there and not isinstance(one, _DEFINITIONS)]
            own = {getattr(one, "name", "") for one in at.tree.body}
            calls = (one for stmt in early for one in ast.walk(stmt) if isinstance(one, ast.Call))
            if node.lineno < there and (not runs_late(at, node) or any(leaf(one.func) in own for one in calls)):
                yield f"{at.path}:{node.lineno} makes a spec before the class is there"

    def is_there(self, at: Source) -> bool:
        """Whether a file imports the class at its top."""
        froms = (node for node in at.tree.body if isinstance(node, ast.ImportFrom))
        homes = [
            (self.bench.locate(at.path, node.module or "", node.level), one) for node in froms for one in node.names
        ]
        return any(path == self.home.path and one.name == self.name and not one.asname for path, one in homes)

    @property
    def _line(self) -> int:
        """The line where the class comes to stand, or stands."""
        if self.module:
            return next(node.lineno for node in self.home.tree.body if getattr(node, "name", "") == self.name)
        return self.anchor.lineno if self.anchor else max(part.statement.lineno for part in self.parts)

    # --- what comes -------------------------------------------------------------------------------------------

    @property
    def anchor(self) -> ast.stmt | None:
        """Of a class that comes for an installer: the statement that it stands at, where all that it names is there."""
        if self.installer is None:
            return None
        now = [node for part in self.parts for node in self._now(part)]
        behind = [self._binding(name) for node in now for name in names_in(node)]
        return max([self.installer, *filter(None, behind)], key=last_line)

    def _now(self, part: Part) -> list[ast.expr]:
        """What runs when the class is made."""
        function = self.inner.get(leaf(part.value))
        if function is None:
            return [part.value]
        spec = function.args
        said = [one.annotation for one in ast.walk(spec) if isinstance(one, ast.arg)] + [function.returns]
        later = "annotations" in imported(self.source)
        defaults = [*spec.defaults, *spec.kw_defaults, *([] if later else said)]
        return [*function.decorator_list, *filter(None, defaults)]

    def writing(self) -> Iterator[tuple[Source, Fix]]:
        """The class in the place of statements of a module, or where all is there that it names."""
        *_, last = (part.statement for part in self.parts)
        if self.module:
            return
        if self.installer is None:
            text = _apart(self.source, [part.statement for part in self.parts], self.text)
            yield self.source, Rewrite(last, text, tell_checkers=False)
        elif self.anchor is not None and self.anchor is not self.installer:
            yield self.source, below(self.anchor, f"\n\n{self.text}")
        if self._import_inside and not bound_to(self.source, self.cls, self.source.tree.body[0]):
            yield self.source, AddImport(self._import_inside, self.owner)

    def going(self, *, whole: bool = True) -> list[ast.stmt]:
        """The statements that go; if not the `whole` installer does, then with the backups that nothing asks for."""
        inside = {id(node) for function in self.inner.values() for node in ast.walk(function)}
        around = self.installer
        said = Counter(one.id for one in self.source.every(ast.Name) if id(one) not in inside)
        idle = (node for node in around.body if isinstance(node, ast.Assign)) if around and not whole else ()
        backups = [node for node in idle if (name := leaf(node.targets[0])) in self._backups and said[name] == 1]
        return [*(part.statement for part in self.parts), *self.inner.values(), *backups]

    @property
    def text(self) -> str:
        """The class."""
        blocks = [
            getattr(self.installer, "body", None),
            *(getattr(node, "body", None) for node in self.source.tree.body),
        ]
        first = next((block[0] for block in blocks if block), None)
        indent = (self.source.indentation(first) if first else "") or "    "
        names = [f"`{part.name}`" for part in self.parts]
        listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
        told = f"Megatron's own with another {listed}, for specs to name."
        if len(told) + len(indent) + 6 > line_limit(self.source):
            told = "Megatron's own with other methods, for specs to name."
        text = f'class {self.name}({self.owner}):\n{indent}"""{told}"""\n'
        gap = True
        for part in self.parts:
            function = self.inner.get(leaf(part.value))
            text += "\n" if gap or function else ""
            text += self._moved(function, part.name) if function else self._assigned(part, indent)
            gap = function is not None
        return text.removesuffix("\n")

    def _assigned(self, part: Part, indent: str) -> str:
        """A method that is a name, with the comments of the statement that goes for it."""
        source, statement = self.source, part.statement
        line = f"{indent}{part.name} = {source.text(part.value)}"
        if self.installer is None and part is self.parts[-1]:  # its comments stay where they are
            return f"{line}\n"
        told = [
            source.line(number).strip() for number in range(source.first_with_comments(statement), statement.lineno)
        ]
        end = source.span(statement).end
        behind = source.text_of(Span(end, source.line_span(1, last_line(statement)).end)).strip()
        comment = f"  {behind}" if behind and not is_for_checkers(source, statement) else ""
        return "".join(f"{indent}{one}\n" for one in told) + f"{line}{comment}\n"

    def _moved(self, function: Function, name: str) -> str:
        """A function as a method, which asks the class for what a local held; its lines stand as deep as before."""
        source, kept = self.source, self._kept_in(function)
        first = source.first_with_comments(function)
        lines = [source.line(number) for number in range(first, last_line(function) + 1)]
        asked = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id in kept]
        for node in sorted(asked, key=lambda node: (node.lineno, -node.col_offset)):
            line = lines[node.lineno - first].encode()
            new = line[: node.col_offset] + self._backups[node.id].encode() + line[node.end_col_offset :]
            lines[node.lineno - first] = new.decode()
        head = function.lineno - first
        lines[head] = lines[head].replace(f"def {function.name}", f"def {name}", 1)
        return "\n".join([*lines, ""])


def gone_with(bench: Workbench, patches: Sequence[ClassPatch]) -> Emptied:
    """What goes with the patches that functions install: several may be all that one of them does."""
    gone: defaultdict[Source, list[ast.stmt]] = defaultdict(list)
    for patch in (one for one in patches if one.installer):
        gone[patch.source] += patch.going()
    return with_emptied(bench, gone)


def _names_of(node: ast.AST) -> str:
    """The name that a node has, whatever it is."""
    return next((name for key in ("id", "attr", "arg", "name") if isinstance(name := getattr(node, key, ""), str)), "")


def _bound(node: ast.stmt) -> Counter[str]:
    """The names that a statement binds where it stands."""
    return bound_in([node] if isinstance(node, Function) else ast.walk(node))


def _only_binding(source: Source, name: str) -> ast.stmt | None:
    """The statement of a module that binds a name, where no other does, nor a function."""
    every = [node for node in source.tree.body if name in _bound(node)]
    shared = any(name in node.names for node in source.every(ast.Global))
    return every[0] if len(every) == 1 and not shared else None


def _acts(node: ast.stmt) -> bool:
    """Whether a statement of a module does more than give names to something when the module is imported."""
    if isinstance(node, Function | ast.ClassDef) or is_main(node):
        return False
    assigned = [target for one in ast.walk(node) if isinstance(one, ast.Assign) for target in one.targets]
    called = any(isinstance(one, ast.Expr) and isinstance(one.value, ast.Call) for one in ast.walk(node))
    return called or any(isinstance(target, ast.Attribute | ast.Subscript) for target in assigned)


def _apart(source: Source, gone: Sequence[ast.stmt], text: str) -> str:
    """The text of a class in the place of the last of some statements that go, with two blank lines around it."""
    *others, last = gone
    lines = {line for node in others for line in range(source.first_with_comments(node), last_line(node) + 1)}
    line, end = source.first_with_comments(last) - 1, last_line(last) + 1
    before = most = 0
    while line > 0 and (source.is_blank(line) or line in lines):
        before = 0 if line in lines else before + 1
        line, most = line - 1, max(most, before)
    after = next(
        (count for count in range(2) if end + count <= len(source.lines) and not source.is_blank(end + count)), 2
    )
    commented = source.first_with_comments(last) < last.lineno
    # A comment behind the statement stays behind the method.
    behind = "#" in source.line(end - 1)[last.end_col_offset :] and not is_for_checkers(source, last)
    ends = behind or end > len(source.lines)
    return "\n" * (0 if commented or not line else max(0, 2 - most)) + text + "\n" * (0 if ends else 2 - after)
