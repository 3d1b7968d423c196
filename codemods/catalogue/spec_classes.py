"""Methods of classes that specs name: a subclass has them, and the specs of the repository name that."""

from __future__ import annotations

import ast
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from mcore_unpatch.codemods.changes import Change, Make, Replace, Rewrite, above, below
from mcore_unpatch.codemods.codemod import (
    COMPAT,
    AddImport,
    Codemod,
    DropImport,
    Elsewhere,
    Example,
    Fix,
    Left,
    Match,
    Note,
    Settles,
    Situation,
)
from mcore_unpatch.codemods.emptied import Emptied, references, with_emptied
from mcore_unpatch.codemods.imports.places import line_limit
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.seams.patch import is_taken
from mcore_unpatch.codemods.seams.specs import (
    SpecPlaces,
    bound_to,
    find_makers,
    find_named,
    imports_back,
    imports_of,
    is_free,
    leaf_of,
    module_for,
    releases_for,
    runs_late,
    why_not,
)
from mcore_unpatch.codemods.syntax import is_stored, leaf, names_in, parameters
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.source import Function, Source, first_line, last_line
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.megatron import api, slots

if TYPE_CHECKING:
    import libcst as cst

_WITH = "with_classes"
_SHAPES = ("class-attr", "setattr", "module-attr")
_CHOOSING = ast.If | ast.For | ast.While | ast.Try | ast.With | ast.Match


class SpecClasses(Codemod):
    """The patch becomes a subclass, and specs name it where they are made."""

    name, title = "spec-classes", "Classes that specs name"
    answers = ("MCU402",)
    does = "names a subclass in the specs"
    examples = (
        Example(
            "MCU402",
            before="""
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.transformer.attention import SelfAttention

original = SelfAttention.forward


def scaled_forward(self, hidden_states, *args, **kwargs):
    return original(self, hidden_states * 2, *args, **kwargs)


SelfAttention.forward = scaled_forward


def model_provider(config):
    spec = get_gpt_decoder_block_spec(config, use_transformer_engine=True)
    return GPTModel(config, spec, vocab_size=128, max_sequence_length=64)
""",
            after="""
from mcore_unpatch.compat import with_classes
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.transformer.attention import SelfAttention

original = SelfAttention.forward


def scaled_forward(self, hidden_states, *args, **kwargs):
    return original(self, hidden_states * 2, *args, **kwargs)


class PatchedSelfAttention(SelfAttention):
    \"\"\"Megatron's own with another `forward`, for specs to name.\"\"\"

    forward = scaled_forward


def model_provider(config):
    spec = with_classes(
        get_gpt_decoder_block_spec(config, use_transformer_engine=True),
        {SelfAttention: PatchedSelfAttention},
        needed=False,
    )
    return GPTModel(config, spec, vocab_size=128, max_sequence_length=64)
""",
            unsafe=True,
        ),
    )
    covers = """
methods of a class that specs name, put on the class by plain assignments or `setattr` of one module or one function of
it, and a subclass of the repository's own under the name of Megatron's in a module that makes specs
"""
    changes = """
- A subclass comes where the patch was, with its methods. The function that installed them goes, with its calls.
- Specs of the repository's own that name the class name the subclass.
- A call of a function of Megatron's that makes specs stands in `with_classes`, which names the subclass in what it
  gives. `needed=False`: for some options that may be another class, and the patch had no effect then either.
"""
    applied = """
With `--unsafe-fixes`, all places or none. Megatron has the class from specs alone on every release that is judged for,
and compares it with nothing that the repository leads to; no class that derives from it stands in these specs; the
patch is made in any case and never taken back; the repository makes the specs itself, and does nothing else with the
class than ask for it with `isinstance`, annotate with it and read its members.
"""
    by_hand = """
- **A process that built a model without the patch** has the subclass now: the specs name it for all.
- **Specs that another package makes** keep Megatron's own class.
"""

    def fix(self, source: Source, match: Match) -> Iterator[Fix]:
        """All classes of the repository, with the first finding that is rewritten: they may share a spec."""
        situation, bench = match.situation, match.situation.files
        if _subject(situation.finding) is None:
            return
        if SpecClasses not in bench.known:
            findings = [one for one in situation.open if _subject(one) and one.path.endswith(".py")]
            by_class: defaultdict[tuple[str, str], list[Finding]] = defaultdict(list)
            for finding in findings:
                by_class[_subject(finding) or ("", "")].append(finding)
            swaps = [_ClassPatch(situation, cls, module, some) for (cls, module), some in by_class.items()]
            for swap in swaps:
                swap.why_not = next(swap.reasons(), "")
            twice = [swap for swap in swaps if sum(one.cls == swap.cls and not one.why_not for one in swaps) > 1]
            for swap in twice:
                swap.why_not = swap.why_not or f"`{leaf_of(swap.cls)}` is changed in several ways"
            together = [one for one in swaps if not one.why_not]
            for why in _emptied(bench, together).values():
                for swap in (one for one in together if one.installer):
                    swap.why_not = swap.why_not or why
            bench.known[SpecClasses] = swaps
        swaps = bench.known[SpecClasses]
        mine = next(swap for swap in swaps if situation.finding in swap.findings)
        if mine.why_not:
            yield Left(mine.why_not)
            return
        good = [swap for swap in swaps if not swap.why_not]
        for at, change in (*_writing(bench, good), *_naming(bench, good)):
            here = at is source or not isinstance(change, Change | AddImport)
            yield change if here else Elsewhere(at, change)  # type: ignore[arg-type]
        yield Note("specs that are made here name the subclass in every process, also where the patch was not made")
        yield Note("specs that another package makes name Megatron's own class")
        yield Settles([finding for one in good for finding in one.findings])


def _subject(finding: Finding) -> tuple[str, str] | None:
    """The class that a finding changes, and the module in which only its name was replaced; None for another patch."""
    owner, _, _ = finding.target.rpartition(".")
    holder, symbol = api.lookup(owner), api.lookup(finding.target)
    if finding.rule != "MCU402" or finding.shape not in _SHAPES or holder is None:
        return None
    if holder.kind == "class":
        return holder.name, ""
    return (symbol.name, holder.name) if symbol is not None and symbol.kind == "class" else None


@dataclass(frozen=True)
class _Part:
    """`owner.name = value`."""

    statement: ast.stmt
    owner: ast.expr
    name: str
    value: ast.expr


@dataclass
class _ClassPatch:
    """A class of Megatron's, and another that specs name in its place."""

    situation: Situation
    cls: str
    module: str  # where only the name is another
    findings: list[Finding]
    why_not: str = ""
    parts: list[_Part] = field(default_factory=list)
    inner: dict[str, Function] = field(default_factory=dict)  # functions inside the one that installs them
    installer: Function | None = None
    places: SpecPlaces = field(default_factory=lambda: SpecPlaces(""))
    name: str = ""  # of the class that comes, or is there
    home: Source = None  # type: ignore[assignment]  # where that is
    source: Source = None  # type: ignore[assignment]  # where the patch is

    @property
    def short(self) -> str:
        return leaf_of(self.cls)

    @property
    def bench(self) -> Workbench:
        return self.situation.files

    # --- whether ----------------------------------------------------------------------------------------------

    def reasons(self) -> Iterator[str]:
        """Why it is left; the first that there is counts."""
        first, options = self.findings[0], self.situation.options
        if any("megatron/core/" in path for path in self.bench.paths):
            yield "this repository has a megatron.core of its own, which makes specs"
        if any(finding.in_test for finding in self.findings):
            yield "a test patches it"
        if len({finding.path for finding in self.findings}) > 1:
            yield f"several files change `{self.short}`"
        for finding in self.findings:
            if finding.temporary or finding.confidence != "certain":
                yield f"line {finding.line} patches for a while, or what may be another class"
            if finding.live.depends or finding.live.guards:
                yield f"line {finding.line} does not patch in any case"
            if any(related.role == "restore" for related in finding.related):
                yield f"line {finding.line} is taken back"
            if finding.effect in ("breaks", "may_break"):
                yield f"what line {finding.line} puts in place breaks on a release that is judged for: mend it first"
        targets = {finding.target for finding in self.findings}
        for other in (*self.situation.open, *self.situation.staying.findings):
            again = other.target in targets and other not in self.findings
            if again or (leaf_of(other.target) in _maker_names() and not other.in_test):
                yield f"{other.path}:{other.line} patches `{leaf_of(other.target)}` too"
        source = self.bench.readable(first.path)
        if source is None or len(targets) < len(self.findings):
            yield f"`{self.short}` is changed in several ways"
            return
        self.source = self.home = source
        yield from self._form()
        releases = releases_for(options.judged(first.path))
        methods = [part.name for part in self.parts] if not self.module else []
        if because := why_not(self.bench, self.cls, methods, releases):
            yield because
        heirs = {leaf_of(heir) for release in releases for heir in release.derived.get(self.cls, ())}
        self.places = find_makers(self.bench, self.cls, sorted(heirs), self.module)
        if not self.places.why_not and not self.module:
            statements = [part.statement for part in self.parts]
            find_named(self.bench, self.places, statements, methods, self.installer)
        if self.places.why_not:
            yield self.places.why_not
        if heir := next((one for one in sorted(heirs) for at in self.bench.sources_naming(one) if not self.module), ""):
            yield f"this repository names `{heir}`, which derives from `{self.short}`"
        yield from self._reach()

    def _form(self) -> Iterator[str]:
        """Whether the patch is written in a way that is known."""
        source = self.source
        for finding in self.findings:
            statement = source.starting.get((finding.line, finding.column - 1))
            match statement:
                case ast.Assign([ast.Attribute(owner, name)], value):
                    self.parts.append(_Part(statement, owner, name, value))
                case ast.Expr(ast.Call(ast.Name("setattr"), [owner, ast.Constant(str(name)), value], [])):
                    self.parts.append(_Part(statement, owner, name, value))
                case _:
                    yield f"line {finding.line} is no plain assignment"
                    return
        suites = {id(source.home[id(part.statement)]): source.home[id(part.statement)] for part in self.parts}
        around = source.function_of(self.parts[0].statement)
        plain = isinstance(around, ast.FunctionDef) and around in source.tree.body and not around.decorator_list
        if len(suites) > 1 or next(iter(suites.values())) is not (around.body if around else source.tree.body):
            yield "the patch does not stand in one module or function alone, in no branch of it"
        if around is not None and not plain:
            yield f"`{around.name}` is no plain function of the module"
        self.installer = around
        if around is not None:
            yield from self._installed(around)
        yield from self._swapped() if self.module else self._methods()

    def _installed(self, around: Function) -> Iterator[str]:
        """What goes with the statements, and whether the function is called in any case."""
        inner = {node.name: node for node in around.body if isinstance(node, ast.FunctionDef)}
        self.inner = {leaf(part.value): inner[leaf(part.value)] for part in self.parts if leaf(part.value) in inner}
        yield from _emptied(self.bench, [self]).values()

    @property
    def going(self) -> list[ast.stmt]:
        """The statements that go."""
        return [*(part.statement for part in self.parts), *self.inner.values()]

    def _methods(self) -> Iterator[str]:
        """The methods of a class that comes."""
        self.name, around = f"Patched{self.short}", self.installer
        if not is_free(self.source, self.name):
            yield f"the name `{self.name}` is taken"
        for number, part in enumerate(self.parts):
            before = {other.name for other in self.parts[:number]}  # names of the class by then
            if names_in(part.value) & before or any(isinstance(node, ast.NamedExpr) for node in ast.walk(part.value)):
                yield f"line {part.statement.lineno} names what the class has by then"
            function = self.inner.get(leaf(part.value))
            if around is None:
                continue
            local = set(parameters(around)) | {name for node in ast.walk(around) for name in _stored(node)}
            used = names_in(part.value if function is None else function)
            if function is not None:
                used -= {*parameters(function), *(name for node in ast.walk(function) for name in _stored(node))}
                used -= self._backups.keys()
                if _has_text(function) or function.name in used:
                    yield f"`{function.name}` cannot be moved as it is"
            if taken := sorted(used & (local - {leaf(part.owner)})):
                yield f"line {part.statement.lineno} uses `{taken[0]}` of `{around.name}`"
        owner = leaf(self.parts[0].owner)
        homes = [node for node in self.source.every(ast.ImportFrom) if owner in map(_bound, node.names)]
        if around is not None and not any(node in (*self.source.tree.body, *around.body) for node in homes):
            yield f"`{owner}` is not imported in any case"
        if not isinstance(self.parts[0].owner, ast.Name) and around is not None:
            yield f"`{ast.unparse(self.parts[0].owner)}` is no plain name"

    @property
    def _backups(self) -> dict[str, str]:
        """The locals that hold what the class has: `original = Class.method`."""
        found: dict[str, str] = {}
        for node in self.installer.body if self.installer else ():
            match node:
                case ast.Assign([ast.Name(name)], ast.Attribute(owner, _) as value) if leaf(owner) == leaf(
                    self.parts[0].owner
                ):
                    found[name] = self.source.text(value)
        return found

    def _swapped(self) -> Iterator[str]:
        """A subclass of the repository's own."""
        value = self.parts[0].value
        at = next(
            (one for one in self.source.tree.body if isinstance(one, ast.ClassDef) and one.name == leaf(value)), None
        )
        if at is None and isinstance(value, ast.Name):
            for node in (one for one in self.source.every(ast.ImportFrom) if [*map(_bound, one.names)].count(value.id)):
                path = self.bench.locate(self.source.path, node.module or "", node.level)
                home = self.bench.readable(path) if path else None
                if home is not None and not any(alias.asname for alias in node.names):
                    at = next(
                        (one for one in home.tree.body if isinstance(one, ast.ClassDef) and one.name == value.id), None
                    )
                    self.home = home
        if at is None or not any(bound_to(self.home, self.cls, at) == leaf(base) for base in at.bases):
            yield f"`{ast.unparse(value)}` is no subclass of `{self.short}` that a file of this repository defines"
            return
        self.name = at.name

    def _reach(self) -> Iterator[str]:
        """Whether every place can see the class."""
        if not self.places.named and not self.places.made:
            yield f"this repository is not seen to make a spec that names `{self.short}`"
        if self.installer is None:
            importing = [*imports_of(self.bench, self.source.path)]
            if not importing and any(at is not self.source for at, _ in self.places.every):
                yield f"nothing is seen to import {self.source.path}"
            for at, statement in importing:
                if any(isinstance(one, _CHOOSING) for one in at.above(statement)):
                    yield f"{at.path}:{statement.lineno} does not import {self.source.path} in any case"
        for at in {id(at): at for at, _ in self.places.every}.values():
            if at.path not in self.bench.editable:
                yield f"{at.path} {self.bench.not_editable(at.path)}"
            if at is not self.home:
                if not module_for(self.bench, self.home.path, at.path):
                    yield f"what {at.path} has to import {self.home.path} as is not known"
                if imports_back(self.bench, self.home.path, at.path):
                    yield f"{self.home.path} imports {at.path}, which would have to import it"
                if not is_free(at, self.name) and leaf_of(bound_here(at, self.name)) != self.name:
                    yield f"the name `{self.name}` is taken in {at.path}"
        for at, call in self.places.made:
            taken = [_WITH] if is_taken(_WITH, at) else []
            taken += [self.short] if not bound_to(at, self.cls, call) and not is_free(at, self.short) else []
            yield from (f"the name `{name}` is taken in {at.path}" for name in taken)
        for at, node in self.places.every:
            if at is self.home and not runs_late(at, node) and node.lineno < self._line:
                yield f"line {node.lineno} makes a spec before the class is there"

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
        used = {name for part in self.parts for name in names_in(part.value)}
        behind = [node for node in self.source.tree.body if getattr(node, "name", "") in used]
        return max([self.installer, *behind], key=lambda node: node.lineno)

    def writing(self) -> Iterator[tuple[Source, Fix]]:
        """The class in the place of statements of a module, or where all is there that it names."""
        *_, last = (part.statement for part in self.parts)
        if self.module:
            return
        if self.installer is None:
            yield self.source, Rewrite(last, _apart(self.source, last, self.text))
        elif self.anchor is not None and self.anchor is not self.installer:
            yield self.source, below(self.anchor, f"\n\n{self.text}")
        yield from self._for_the_base(self.source)

    def stays(self) -> list[ast.stmt]:
        """What goes from an installer that has more to do."""
        return [*self.going, *(node for node in self.installer.body if self._is_backup(node))] if self.installer else []

    def _is_backup(self, node: ast.stmt) -> bool:
        name = leaf(node.targets[0]) if isinstance(node, ast.Assign) else ""
        inside = {id(one) for function in self.inner.values() for one in ast.walk(function)}
        said = [one for one in self.source.every(ast.Name) if one.id == name and id(one) not in inside]
        return name in self._backups and len(said) == 1

    def _for_the_base(self, source: Source) -> Iterator[tuple[Source, Fix]]:
        """The import of the base, where only the installer had it."""
        owner = leaf(self.parts[0].owner)
        if not self.module and self.installer and not bound_to(source, self.cls, self.installer):
            inside = [node for node in ast.walk(self.installer) if isinstance(node, ast.ImportFrom)]
            for node in (one for one in inside if owner in map(_bound, one.names)):
                yield source, AddImport(node.module or "", owner)

    @property
    def text(self) -> str:
        """The class."""
        base = ast.unparse(self.parts[0].owner)
        names = [f"`{part.name}`" for part in self.parts]
        listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
        lines = [
            f"class {self.name}({base}):",
            f'    """Megatron\'s own with another {listed}, for specs to name."""',
            "",
        ]
        for part in self.parts:
            if function := self.inner.get(leaf(part.value)):
                gap = [""] if lines[-1] else []
                lines += [*gap, textwrap.indent(self._moved(function, part.name), "    ")]
            else:
                lines.append(f"    {part.name} = {self.source.text(part.value)}")
        return "\n".join(lines)

    def _moved(self, function: Function, name: str) -> str:
        """A function as a method, which asks the class for what a local held."""
        source, backups = self.source, self._backups
        lines = [source.line(number) for number in range(first_line(function), last_line(function) + 1)]
        asked = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id in backups]
        for node in sorted(asked, key=lambda node: (node.lineno, -node.col_offset)):
            index = node.lineno - first_line(function)
            line = lines[index].encode()
            new = line[: node.col_offset] + backups[node.id].encode() + line[node.end_col_offset :]
            lines[index] = new.decode()
        head = function.lineno - first_line(function)
        lines[head] = lines[head].replace(f"def {function.name}", f"def {name}", 1)
        return textwrap.dedent("\n".join(lines))


def _gone(bench: Workbench, patches: Sequence[_ClassPatch]) -> Emptied:
    """What goes with the patches that functions install: several may be all that one of them does."""
    gone: defaultdict[Source, list[ast.stmt]] = defaultdict(list)
    for patch in (one for one in patches if one.installer):
        gone[patch.source] += patch.going
    return with_emptied(bench, gone)


def _emptied(bench: Workbench, patches: Sequence[_ClassPatch]) -> dict[str, str]:
    """Why what installs some patches cannot go, or is not called in any case, by function."""
    emptied, found = _gone(bench, patches), dict[str, str]()
    if emptied.why_not:
        found[""] = emptied.why_not
    inner = [node for patch in patches for node in patch.inner.values()]
    functions = [(patch.source, patch.installer) for patch in patches if patch.installer]
    functions += [(at, one) for at, some in emptied.statements.items() for one in some if isinstance(one, Function)]
    for at, function in (one for one in functions if one[1] not in inner):
        calls = [(other, use) for other, use in references(bench, at, function) if isinstance(use, ast.Expr)]
        if not calls:
            found[function.name] = f"nothing is seen to call `{function.name}`"
        for other, use in calls:
            if any(isinstance(one, _CHOOSING) and not _is_main(one) for one in other.above(use)):
                found[function.name] = f"{other.path}:{use.lineno} does not call `{function.name}` in any case"
    return found


def _writing(bench: Workbench, patches: Sequence[_ClassPatch]) -> Iterator[tuple[Source, Fix]]:
    """The classes in the place of the patches, which go with all that only they asked for."""
    emptied = _gone(bench, patches)
    gone = defaultdict(set, {at: set(emptied.outermost(at)) for at in emptied.statements})
    here: defaultdict[Function, list[_ClassPatch]] = defaultdict(list)  # where a class stands at its installer
    for patch in patches:
        yield from patch.writing()
        if patch.installer is None:
            statements = [part.statement for part in patch.parts]
            gone[patch.source] |= {*(statements if patch.module else statements[:-1])}
        elif patch.installer not in gone[patch.source]:
            gone[patch.source] |= set(patch.stays())
        if patch.installer and not patch.module and patch.anchor is patch.installer:
            here[patch.installer].append(patch)
    for installer, some in here.items():
        text, source = "\n\n\n".join(patch.text for patch in some), some[0].source
        if installer in gone[source]:
            gone[source].remove(installer)
            yield source, Rewrite(installer, text)
        else:
            yield source, above(source, installer, f"{text}\n\n")
    for at, nodes in gone.items():
        yield from ((at, change) for change in remove(at, nodes, with_comments=True))
    yield from ((at, DropImport(at, node, name)) for at, node, name in emptied.imports)


def _naming(bench: Workbench, swaps: Sequence[_ClassPatch]) -> Iterator[tuple[Source, Fix]]:
    """The classes in the specs, with what these places import for them."""
    wrapped: dict[int, tuple[Source, ast.Call, list[_ClassPatch]]] = {}
    for swap in swaps:
        for at, node in swap.places.named:
            yield at, Replace(node, swap.name)
            yield from _imports(bench, swap, at)
        for at, call in swap.places.made:
            wrapped.setdefault(id(call), (at, call, []))[2].append(swap)
    for at, call, some in wrapped.values():
        pairs: list[str] = []
        for swap in some:
            base = bound_to(at, swap.cls, call)
            if not base:
                base = swap.short
                yield at, AddImport(swap.cls.rpartition(".")[0], base)
            pairs.append(f"{base}: {swap.name}")
            yield from _imports(bench, swap, at)
        # A spec may name another class for some options: a patch of this one had no effect then either.
        yield at, Make(call, partial(_wrap, at, call, [f"{{{', '.join(pairs)}}}", "needed=False"]))
        yield at, AddImport(COMPAT, _WITH)


def _imports(bench: Workbench, swap: _ClassPatch, at: Source) -> Iterator[tuple[Source, Fix]]:
    if at is not swap.home and leaf_of(bound_here(at, swap.name)) != swap.name:
        yield at, AddImport(module_for(bench, swap.home.path, at.path), swap.name)


def _wrap(source: Source, at: ast.Call, arguments: Sequence[str], call: cst.CSTNode) -> cst.CSTNode:
    """`with_classes(call, ...)`, in a row each where one line is not enough."""
    import libcst as cst

    code, line = cst.Module([]).code_for_node(call), source.line(at.lineno)
    whole = f"{_WITH}({', '.join([code, *arguments])})"
    texts = (node for node in ast.walk(at) if isinstance(node, ast.Constant | ast.JoinedStr))
    in_rows = "\n" in code or len(line) + len(whole) - len(code) > line_limit(source)
    if in_rows and all(node.end_lineno == node.lineno for node in texts):
        indent = line[: len(line) - len(line.lstrip())]
        first, *others = code.split("\n")
        rows = ["\n".join([first, *(f"    {other}" if other.strip() else other for other in others)]), *arguments]
        whole = f"{_WITH}(\n" + "".join(f"{indent}    {row},\n" for row in rows) + f"{indent})"
    return cst.parse_expression(whole)


def bound_here(source: Source, name: str) -> str:
    """What a name is imported as at the top of a file."""
    nodes = (node for node in source.tree.body if isinstance(node, ast.ImportFrom))
    return next((alias.name for node in nodes for alias in node.names if _bound(alias) == name), "")


def _bound(alias: ast.alias) -> str:
    return alias.asname or alias.name


def _stored(node: ast.AST) -> list[str]:
    """The names that a node binds."""
    if isinstance(node, ast.alias):
        return [_bound(node).partition(".")[0]]
    if isinstance(node, Function | ast.ClassDef):
        return [node.name]
    return [node.id] if isinstance(node, ast.Name) and is_stored(node, node.id) else []


def _has_text(function: Function) -> bool:
    """Whether a function has strings of several lines, or names of an outer one: neither can be moved."""
    texts = (node for node in ast.walk(function) if isinstance(node, ast.Constant | ast.JoinedStr))
    outer = any(isinstance(node, ast.Nonlocal | ast.Global) for node in ast.walk(function))
    return outer or any((node.end_lineno or 0) > node.lineno for node in texts)


def _is_main(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).startswith("__name__ ==")


def _apart(source: Source, statement: ast.stmt, text: str) -> str:
    """The text of a class in the place of a statement, with two blank lines around it."""
    before, after, line = 0, 0, statement.lineno - 1
    while line > 0 and source.is_blank(line):
        before, line = before + 1, line - 1
    end = last_line(statement) + 1
    while end + after <= len(source.lines) and source.is_blank(end + after):
        after += 1
    first = line == 0 or source.is_comment(line)
    # A comment behind the statement stays behind the method.
    last = end + after > len(source.lines) or "#" in source.line(end - 1)[statement.end_col_offset :]
    return "\n" * (0 if first else max(0, 2 - before)) + text + "\n" * (0 if last else max(0, 2 - after))


def _maker_names() -> set[str]:
    return {leaf_of(maker) for maker in slots.makers()}
