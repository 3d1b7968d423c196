"""What a wrapper does around the original: the forward hook or pre-hook that does exactly that, and its text."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from mcore_unpatch.codemods.changes import Change, Header, Replace, Rewrite, above
from mcore_unpatch.codemods.layout import step_of
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.syntax import (
    body_of,
    identifiers,
    is_name,
    is_stored,
    is_value,
    leaf,
    names_in,
    walk_without,
)
from mcore_unpatch.editing.source import Source, first_line, last_line
from mcore_unpatch.library.syntax import Nodes

BEHIND = "it runs behind the hooks that the module has by then; the wrapper ran inside all of them"
NOTES = (
    "a hook runs when the module is called, and not when something calls its `.forward(...)` directly",
    BEHIND,
    "no hook runs on a layer that a CUDA graph replays (`cuda_graph_impl`); on its parts it ran at the capture alone",
)
_CAPTURED = 'with `cuda_graph_impl="local"` Megatron refuses pre-hooks on captured layers and their parts'
# What is there only after a hook of Megatron's: its DDP and FSDP gather parameters when a module is called.
_GATHERED = {"weight", "bias", "parameters", "named_parameters", "state_dict", "shared_embedding_or_output_weight"}
_ALWAYS_THERE = {"dtype", "device", "shape", "requires_grad"}
WHOLE_MODEL = "Megatron-FSDP up to 0.18 calls `forward` of the model that it wraps: without Float16Module no hook runs"
KEEPS = "a forward hook that returns None leaves the output as it is; the wrapper's None was the output"
_FAILED = (
    "where forward raises, PyTorch gives such a hook None as the output, and makes a warning of what it raises itself",
    "it also runs where a hook of the module raises before it, and not for KeyboardInterrupt or in `torch.compile`",
)
_BOTH = "`{}` uses its arguments both by name and as `*args` or `**kwargs`"
_MODULE, _OUTPUT = "_module", "output"
_INNER = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef


@dataclass(frozen=True)
class Hook:
    """One hook: when it runs, what it is given, and its name where it is not the wrapper's."""

    moment: Literal["before", "after"]
    with_kwargs: bool
    always: bool = False  # also where forward raises
    name: str = ""

    def registered(self, module: str, hook: str) -> str:
        """The call on the module; without one, that for all modules."""
        kind = "forward_pre_hook" if self.moment == "before" else "forward_hook"
        options = ", with_kwargs=True" * self.with_kwargs + ", always_call=True" * self.always
        return f"{f'{module}.register' if module else 'register_module'}_{kind}({self.name or hook}{options})"


@dataclass(frozen=True)
class Form:
    """A wrapper as a hook, or as two: what becomes of the function."""

    hooks: tuple[Hook, ...]
    sees_arguments: bool
    changes: list[Change]
    notes: tuple[str, ...]

    def commutes_with(self, other: Form) -> bool:
        """Whether two hooks on one module do what the two wrappers did, whichever of these was the outer one.

        Forward hooks run in the order in which wrappers nest, and are given the same arguments. Pre-hooks run the other
        way round, and what they change is what a forward hook is given.
        """
        hooks = (*self.hooks, *other.hooks)
        if len(hooks) > 2:
            return False
        if hooks[0].moment == hooks[1].moment:
            return hooks[0].moment == "after"
        return not (self.sees_arguments and other.sees_arguments)


@dataclass(frozen=True)
class _Parameter:
    """A parameter with a name of its own; `default` is the text of a constant, empty where there is none."""

    name: str
    default: str = ""

    def taken_from(self, kwargs: str, *, take: bool) -> str:
        """What reads it where it was passed by name."""
        given = f'"{self.name}", {self.default}' if self.default else f'"{self.name}"'
        return f"{kwargs}.pop({given})" if take else f"{kwargs}.get({given})" if self.default else f"{kwargs}[{given}]"


class Wrapper:
    """The function: its parameters, its call of the original, and what comes before or after.

    `target` is what is replaced, as the code around it writes that: `model.decoder.forward`; `original` is how the
    function names it. Of one that is `bound` the first parameter is the module. The first ones may be `given` already:
    the object of a method, what a `partial` holds.
    """

    def __init__(
        self,
        source: Source,
        function: ast.FunctionDef,
        target: str,
        original: str,
        bound: bool,
        given: Sequence[str] = (),
        only: str = "",
    ) -> None:
        """`only` is the class of the modules that it is for, where the hook is one for all modules."""
        self.source, self.function, self.target, self.only = source, function, target, only
        spec = function.args
        positional = [parameter.arg for parameter in (*spec.posonlyargs, *spec.args)]
        defaults = [_constant(default) for default in spec.defaults]
        self.is_odd = None in defaults  # a default that is more than a constant
        texts = [*[""] * (len(positional) - len(defaults)), *(default or "" for default in defaults)]
        self.named = [_Parameter(*pair) for pair in zip(positional, texts, strict=True)][len(given) :]
        self.given = [name for name in given if name != original]
        self.module = self.named.pop(0).name if bound and self.named else _MODULE
        self.args = spec.vararg.arg if spec.vararg else ""
        self.kwargs = spec.kwarg.arg if spec.kwarg else ""
        self.all_args, self.all_kwargs = self.args or "args", self.kwargs or "kwargs"  # as the hook names them
        self.original, self.mentions, self.is_bound = original, {original}, False
        self.own: list[str] = []  # parameters that only hold a value
        self.withheld: list[_Parameter] = []  # that a caller may pass by name, and the original does not get
        for parameter, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            text = ast.unparse(value) if value is not None else ""
            if text and text in {original, target}:
                self.original, self.is_bound = parameter.arg, True
                self.mentions.add(parameter.arg)
            elif value is not None and (parameter.arg.startswith("_") or text == parameter.arg):
                self.own.append(f"{parameter.arg}={source.text(value)}")
            elif constant := _constant(value):
                self.withheld.append(_Parameter(parameter.arg, constant))
            else:
                self.is_odd = True
        self.changes: list[Change] = []

    def read(self) -> Form | str:
        """How it is registered, with the changes of the function; or why it is no hook."""
        function = self.function
        if has_comments_in_header(self.source, function):
            return f"`{function.name}` has comments between its parameters"
        if self.is_odd:
            return f"`{function.name}` has parameters of its own, which a caller may pass by name or leave out"
        every = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        calls = [call for call in every if ast.unparse(call.func) == self.original]
        wraps = [one for one in function.decorator_list if isinstance(one, ast.Call) and self._is_wraps(one)]
        inside = [node for item in function.body for node in walk_without(item, [call.func for call in calls])]
        if len(calls) != 1 or any(map(self._says_original, inside)):
            return f"`{function.name}` uses the original for more than one call"
        if len(wraps) != len(function.decorator_list):
            return f"`{function.name}` is decorated"
        own = Nodes([function]).own
        if ast.Yield in own or ast.YieldFrom in own:
            return f"`{function.name}` is a generator"
        invented = {_MODULE, f"_{self.all_args}"} | {self.all_args, self.all_kwargs} - {self.args, self.kwargs}
        if taken := invented & identifiers(function):
            return f"the name `{min(taken)}` is taken"
        body = body_of(function)
        rest = walk_without(function, [*calls, function.args])
        if self.only and self.module == _MODULE and any(is_name(node, self.args) for node in rest):
            return f"`{self.args}` of `{function.name}` holds the module too"
        returns = list(own.of(ast.Return))
        last = body[-1]
        if isinstance(last, ast.Return) and last.value is calls[0] and len(returns) == 1:
            return self._before(body[:-1], last, calls[0])
        begin = next(index for index, one in enumerate(body) if not isinstance(one, ast.Global | ast.Nonlocal))
        if calls[0] in ast.walk(body[begin]) and not isinstance(body[begin], ast.Try):
            return self._after(body[begin:], calls[0], returns)
        return self._around(body, calls[0], returns)

    def _is_taken_in_hook(self, name: str) -> bool:
        """Whether the output cannot be a parameter of that name."""
        declared = {
            each for one in self.function.body if isinstance(one, ast.Global | ast.Nonlocal) for each in one.names
        }
        own = {text.partition("=")[0] for text in self.own}
        return name in {self.module, *self.given, self.all_args, self.all_kwargs, *own, *declared}

    def _has_comment(self, statement: ast.stmt) -> bool:
        source, last = self.source, last_line(statement)
        return b"#" in source.data[source.span(statement).start : source.line_span(last, last).end]

    def _says_original(self, node: ast.AST) -> bool:
        """By its name alone, whatever it may be an attribute of."""
        said = {mention.rpartition(".")[2] for mention in self.mentions}
        is_target = isinstance(node, ast.Attribute) and ast.unparse(node) == self.target
        return is_target or leaf(node) in said or (isinstance(node, ast.Constant) and node.value in said)

    def _is_wraps(self, node: ast.Call) -> bool:
        named = [ast.unparse(argument) in {*self.mentions, self.target} for argument in node.args]
        return leaf(node.func) == "wraps" and named == [True]

    def _passes_everything(self, call: ast.Call) -> bool:
        given = [self.module] if self.only and self.module != _MODULE else []  # of a class it is not bound
        given += [parameter.name for parameter in self.named]
        given += [f"*{self.args}"] if self.args else []
        by_name = [f"{keyword.arg}={keyword.arg}" for keyword in call.keywords if keyword.arg is not None]
        if by_name and not self.args:  # the last ones, each by its name
            given = [name for name in given if f"{name}={name}" not in by_name] + by_name
        given += [f"**{self.kwargs}"] if self.kwargs else []
        return ast.unparse(call) == f"{self.original}({', '.join(given)})"

    def _with_own(self, *parameters: str) -> Header:
        return Header(self.function, self._listed(*parameters), undecorated=bool(self.function.decorator_list))

    def _listed(self, *parameters: str) -> str:
        return ", ".join([*self.given, self.module, *parameters, *(["*", *self.own] if self.own else [])])

    def _read_named(self, names: set[str], *, take: bool) -> list[str]:
        """The parameters that the wrapper had names for, by position or by name, as Python binds them."""
        lines = []
        for index, parameter in enumerate(self.named):
            given = f"len({self.all_args}) > {index}" if index else self.all_args
            if parameter.name in names:
                by_name = parameter.taken_from(self.all_kwargs, take=take)
                lines.append(f"{parameter.name} = {self.all_args}[{index}] if {given} else {by_name}")
        return lines

    def _asks(self, nothing: str) -> list[str]:
        """What a hook for all modules asks first."""
        step = step_of(self.source)
        return [f"if not isinstance({self.module}, {self.only}):", f"{step}{nothing}"] if self.only else []

    def _insert(self, first: ast.stmt, lines: list[str]) -> None:
        lines = [*self._asks("return None"), *lines]
        if lines:
            self.changes.append(above(self.source, first, "\n".join(lines)))

    def _changes_arguments(self, call: ast.Call) -> str:
        """Why the original does not get what the wrapper got."""
        name = self.function.name
        if self.withheld:
            return f"`{name}` withholds `{self.withheld[0].name}` from the original, which a forward hook cannot"
        if not self._passes_everything(call):
            return f"`{name}` does not forward all its arguments"
        if default := next((parameter.name for parameter in self.named if parameter.default), ""):
            return f"`{name}` has a default of its own for `{default}`, which the original may not have"
        return ""

    def _after(self, body: list[ast.stmt], call: ast.Call, returns: list[ast.Return]) -> Form | str:
        """The original first: a forward hook, which is given the output."""
        name, first = self.function.name, body[0]
        if because := self._changes_arguments(call):
            return because
        plain = isinstance(first, ast.Assign) and first.value is call and len(first.targets) == 1
        target = first.targets[0] if isinstance(first, ast.Assign) else None
        kept = target.id if plain and isinstance(target, ast.Name) else ""
        rest = walk_without(self.function, [call, *self.function.decorator_list])
        used = {node.id for node in rest if isinstance(node, ast.Name)} - {kept}  # no argument any more
        read = {parameter.name for parameter in self.named} & used
        if read and {self.args, self.kwargs} & used:
            return _BOTH.format(name)
        output, goes = _OUTPUT, bool(kept) and len(body) > 1 and not self._has_comment(first)
        if goes and not self._is_taken_in_hook(kept):
            output = kept
            self.changes += remove(self.source, [first])
        elif plain or (isinstance(first, ast.Return) and self._comes_first(call, first)):
            if output in identifiers(self.function):
                output = f"{output}s"
            if output in identifiers(self.function):
                return f"the name `{output}` is taken"
            self.changes.append(Replace(call, output))
        else:
            return f"`{name}` calls the original on a condition, within a block, or after something else"
        if _may_give_none(body, returns):
            return f"`{name}` may return None, which a forward hook ignores"
        self._insert(body[1] if output == kept else first, self._read_named(read, take=False))
        given = [self.all_args if read or self.args in used else f"_{self.all_args}"]
        keywords = bool(read) or (bool(self.kwargs) and self.kwargs in used)
        given += [self.all_kwargs] if keywords else []
        self.changes.append(self._with_own(*given, output))
        sees = bool(read) or bool({self.args, self.kwargs} & used)
        return Form((Hook("after", keywords),), sees, self.changes, (*NOTES, KEEPS))

    def _comes_first(self, call: ast.Call, statement: ast.Return) -> bool:
        """Whether every other call of a `return` is made on the result of this one, and nothing is read before."""
        whole = list(ast.walk(statement))
        others = [node for node in whole if isinstance(node, ast.Call) and node is not call]
        special = any(isinstance(node, ast.IfExp | ast.BoolOp | ast.NamedExpr | ast.Await | _INNER) for node in whole)
        around = [node for other in others for node in ast.walk(other.func)]
        places = [node for node in whole if isinstance(node, ast.Attribute | ast.Subscript)]
        before = [node for node in places if (node.lineno, node.col_offset) < (call.lineno, call.col_offset)]
        given = {self.args, self.kwargs, *(parameter.name for parameter in self.named)}
        early = [node for node in before if node not in around and not names_in(node) <= given]
        return not special and not early and all(call in ast.walk(other) for other in others)

    def _before(self, body: list[ast.stmt], last: ast.Return, call: ast.Call) -> Form | str:
        """The original last: a pre-hook, which may give other arguments."""
        name, arguments = self.function.name, call.args
        if self.only:
            if not body or not self._passes_everything(call):
                return f"`{name}` changes arguments, of which PyTorch's pre-hook for all modules sees only some"
            return self._changes_arguments(call) or self._parts([body], [], "", always=False)
        keywords = [keyword for keyword in call.keywords if keyword.arg is not None]
        spread = [ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg is None]
        if spread != ([self.kwargs] if self.kwargs else []):
            return f"`{name}` does not forward `**{self.all_kwargs}`"
        passed = [node for node in (*arguments, *(one.value for one in keywords)) if not isinstance(node, ast.Name)]
        if read := next((word for node in (*body, *passed) for word in _gathered(node)), ""):
            return f"`{name}` reads `{read}` before the original, where Megatron may not have gathered it yet"
        used = {node.id for statement in body for node in ast.walk(statement) if isinstance(node, ast.Name)}
        named = {parameter.name for parameter in self.named}
        if not body and not self.withheld and self._passes_everything(call):
            return f"`{name}` changes nothing"
        parts = [self.source.text(argument) for argument in arguments]
        apart = self.kwargs not in used and not any(isinstance(argument, ast.Starred) for argument in arguments)
        if self.named and self.args:
            apart = parts[-1:] == [f"*{self.args}"]
            apart = apart and self.args not in used.union(*map(names_in, arguments[:-1]))
            parts[-1:] = [f"*{self.args}[{len(self.named)}:]"]
        if not apart and (self.named or not self.args):
            return _BOTH.format(name)
        inner = used | set().union(*map(names_in, (*arguments, *keywords)))
        lines = self._read_named(named, take=True)
        for parameter in self.withheld:
            popped = parameter.taken_from(self.all_kwargs, take=True)
            lines.append(f"{parameter.name} = {popped}" if parameter.name in inner else popped)
        self._insert(body[0] if body else last, lines)
        args = f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        if parts == [f"*{self.args}"]:
            args = self.args if self._stays_a_tuple(body) else f"tuple({self.args})"
        entries = [f'"{keyword.arg}": {self.source.text(keyword.value)}' for keyword in keywords]
        kwargs = f"{{**{self.all_kwargs}, {', '.join(entries)}}}" if entries else self.all_kwargs
        self.changes.append(Rewrite(last, f"return {args}, {kwargs}"))
        self.changes.append(self._with_own(self.all_args, self.all_kwargs))
        return Form((Hook("before", True),), True, self.changes, (*NOTES, _CAPTURED))

    def _stays_a_tuple(self, body: Sequence[ast.stmt]) -> bool:
        """Whether `*args` is, whatever the statements make of it."""
        nodes = [node for statement in body for node in ast.walk(statement)]
        plain = [one for one in nodes if isinstance(one, ast.Assign) and is_name(one.targets[0], self.args)]
        made = [
            one
            for one in plain
            if isinstance(one.value, ast.Tuple) or isinstance(getattr(one.value, "slice", 0), ast.Slice)
        ]
        return sum(is_stored(node, self.args) for node in nodes) == len(made)

    def _around(self, body: list[ast.stmt], call: ast.Call, returns: list[ast.Return]) -> Form | str:
        """Something before and after, or in a `finally` around it: two hooks, or one that is always called."""
        name = self.function.name
        index = next(number for number, statement in enumerate(body) if call in ast.walk(statement))
        head, middle, after, within = body[:index], body[index], body[index + 1 :], list[ast.stmt]()
        output, always = f"_{_OUTPUT}", isinstance(middle, ast.Try)
        if isinstance(middle, ast.Try) and not middle.handlers and not middle.orelse:
            *within, last = middle.body
            match last, after:
                case (ast.Return(value=value), []) if value is call:
                    kept = ""
                case (ast.Assign(targets=[ast.Name(id=kept)], value=value), [ast.Return(value=ast.Name(id=given))]):
                    if value is not call or kept != given or any(kept in names_in(one) for one in middle.finalbody):
                        return f"`{name}` reads what the original returned, which may have raised"
                case _:
                    return f"`{name}` does more in its `try` than to call the original at the end"
            after = middle.finalbody
        elif isinstance(middle, ast.Assign) and middle.value is call and isinstance(middle.targets[0], ast.Name):
            output = middle.targets[0].id
            if len(middle.targets) > 1 or _may_give_none(after, returns):
                return f"`{name}` may return None, which a forward hook ignores"
            after = [] if isinstance(after[0], ast.Return) and is_name(after[0].value or call, output) else after
        else:
            return f"`{name}` does something before and after the original, or calls it on a condition"
        declared: list[ast.stmt] = [one for one in head if isinstance(one, ast.Global | ast.Nonlocal)]
        before = [head[len(declared) :], within] if head[: len(declared)] == declared else [head, within]
        early = [one for some in before for statement in some for one in ast.walk(statement)]
        if any(one in early for one in returns) or (len(returns) > 1 and always):
            return f"`{name}` calls the original on a condition"
        beside = [one for some in (*head, *after) for one in ast.walk(some)] if always else []
        if any(isinstance(one, ast.Raise | ast.Assert) for one in beside):
            return f"`{name}` raises errors of its own around its `try`, which `always_call=True` treats in another way"
        before, parts = [some for some in before if some], [some for some in (declared, after) if some]
        return self._changes_arguments(call) or self._parts(before, parts, output, always)

    def _parts(
        self, before: list[list[ast.stmt]], after: list[list[ast.stmt]], output: str, always: bool
    ) -> Form | str:
        """The function as two, each with its part of the body; as one where nothing comes before the original."""
        name, source, function = self.function.name, self.source, self.function
        first, then = ([one for some in part for one in some] for part in (before, after))
        given = {self.args, self.kwargs, *(parameter.name for parameter in self.named)} - {""}
        stored = set().union(*map(bound, first))
        if changed := stored & given:
            return f"`{name}` changes `{min(changed)}` and does something after the original"
        if crossing := stored & set().union(*map(names_in, then)):
            return f"`{min(crossing)}` of `{name}` is set before the original and read after it"
        if before and any(isinstance(one, ast.Global | ast.Nonlocal) for one in (*first, *then)):
            return f"`{name}` does something before and after the original with names of another scope"
        if read := next((word for node in first for word in _gathered(node)), ""):
            return f"`{name}` reads `{read}` before the original, where Megatron may not have gathered it yet"
        moving = {line for some in (*before, *after) for line in self._lines(some)}
        rest = (line for line in range(function.lineno, last_line(function) + 1) if line not in moving)
        every = [node for one in (*function.body[:1], *first, *then) for node in ast.walk(one)]
        long = any(isinstance(one, ast.Constant | ast.JoinedStr) and one.end_lineno != one.lineno for one in every)
        if long or any("#" in source.line(line) for line in rest):
            return f"`{name}` has comments or texts that would move"
        if then and self._is_taken_in_hook(output):
            return f"the name `{output}` is taken"
        both = bool(before and after)
        names = (f"{name}_before", f"{name}_after") if both else (name, name)
        if taken := {*names, f"_{_OUTPUT}"} & (identifiers(source.tree) - {name, ""}):
            return f"the name `{min(taken)}` is taken"
        hooks, texts, seen = list[Hook](), list[str](), set[str]()
        for own, part, hook in ((first, before, names[0]), (then, after, names[1])):
            used = given.intersection(*[set().union(*map(names_in, own))]) - ({output} if own is then else set())
            by_name = used - {self.args, self.kwargs}
            if by_name and by_name != used:
                return _BOTH.format(name)
            keywords = bool(by_name) or self.kwargs in used
            listed = [self.all_args if used - {self.kwargs} else f"_{self.all_args}", *[self.all_kwargs] * keywords]
            if self.only and (used if own is first else keywords and always):
                return f"`{name}` reads arguments that PyTorch's hook for all modules is not given by name"
            if own is then:
                listed.append(output)
            if own:
                nothing = "return" if always or own is first else "return None"
                reads = [*self._asks(nothing), *self._read_named(by_name, take=False)]
                texts.append(self._definition(hook, self._listed(*listed), reads, part, told=not texts))
                hooks.append(Hook("after" if own is then else "before", keywords, always and own is then, hook * both))
            seen |= used
        apart = "\n\n" if source.indentation(function) else "\n\n\n"
        notes = (*NOTES, *([_CAPTURED] if before else []), *(_FAILED if always else (KEEPS,) if after else ()))
        return Form(tuple(hooks), bool(seen), [Rewrite(function, apart.join(texts))], notes)

    def _lines(self, statements: Sequence[ast.stmt]) -> range:
        return range(self.source.first_with_comments(statements[0]), last_line(statements[-1]) + 1)

    def _definition(self, name: str, listed: str, reads: list[str], parts: list[list[ast.stmt]], *, told: bool) -> str:
        """A function of statements of this one, which may stand deeper there; the first one has the docstring."""
        source, function = self.source, self.function
        begin = function.body[:1] if told and ast.get_docstring(function) is not None else []
        texts = [source.text_of(source.line_span(lines[0], lines[-1])) for lines in map(self._lines, parts)]
        lines = [*map(source.text, begin), *reads, *(textwrap.dedent(text).rstrip() for text in texts)]
        return f"def {name}({listed}):\n" + textwrap.indent("\n".join(lines), step_of(source))


def has_comments_in_header(source: Source, function: ast.FunctionDef) -> bool:
    """Among decorators and parameters, which are written anew."""
    spec = function.args
    parts: list[ast.arg | ast.expr | None] = [*spec.args, *spec.kwonlyargs, *spec.kw_defaults, spec.vararg, spec.kwarg]
    last = max((part.end_lineno or 0 for part in parts if part is not None), default=function.lineno)
    last += last < len(source.lines) and source.line(last + 1).lstrip().startswith(")")
    codes = (source.line(line).partition("#") for line in range(first_line(function), last + 1))
    return any(sign and not code.rstrip().endswith(":") for code, sign, _ in codes)


def _constant(node: ast.expr | None) -> str | None:
    """The text of a constant: it is the same whenever it is evaluated."""
    return ast.unparse(node) if isinstance(node, ast.Constant) else None


def _may_give_none(body: Sequence[ast.stmt], returns: Iterable[ast.Return]) -> bool:
    """Whether a function may come to the end of its body, or says itself that it returns None."""
    nodes = (node for statement in body for node in ast.walk(statement))
    stored = [node for node in nodes if isinstance(node, ast.Assign) and _is_none(node.value)]
    names = {name for node in stored for target in node.targets for name in names_in(target)}
    return not _leaves(body) or any(_is_none(one.value) or getattr(one.value, "id", "") in names for one in returns)


def _is_none(node: ast.expr | None) -> bool:
    """Whether an expression may be the None that stands in it."""
    match node:
        case ast.IfExp(body=body, orelse=orelse):
            return _is_none(body) or _is_none(orelse)
        case ast.BoolOp(values=values):
            return any(map(_is_none, values))
    return node is None or is_value(node, None)


def _leaves(body: Sequence[ast.stmt]) -> bool:
    match body:
        case [*_, ast.Return() | ast.Raise()]:
            return True
        case [*_, ast.If(body=body, orelse=orelse)]:
            return _leaves(body) and _leaves(orelse)
    return False


def bound(node: ast.AST) -> set[str]:
    """The names that code gives a value."""
    stored = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
    return stored | (identifiers(node) - {one.id for one in ast.walk(node) if isinstance(one, ast.Name)})


def _gathered(node: ast.AST) -> Iterator[str]:
    """The parameters whose values code reads."""
    known = [one for one in ast.walk(node) if isinstance(one, ast.Attribute) and one.attr in _ALWAYS_THERE]
    for part in walk_without(node, known):
        said = part.value if isinstance(part, ast.Constant) else leaf(part)  # `getattr(layer, "weight")`
        if said in _GATHERED:
            yield str(said)
