"""Whether a mapping can hold the flag already when a statement is reached."""

from __future__ import annotations

import ast

from mcore_unpatch.codemods.catalogue.nemo_rl import FLAG
from mcore_unpatch.codemods.source import Source
from mcore_unpatch.codemods.syntax import is_value, leaf

_LOOPS = ast.For | ast.AsyncFor | ast.While
_MAKERS = {"dict", "update"}
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module


def is_off(mapping: ast.expr, at: ast.AST, source: Source, *, absent: bool = False) -> bool:
    """Whether the flag is known to be off when `at` is reached, or with `absent` even not to be there.

    It is where the mapping is made in the same function, and nothing between can put the flag in as true.
    """
    if not isinstance(mapping, ast.Name):
        return False
    names = _uses(mapping, at, source)
    made = [node for node in names if isinstance(node.ctx, ast.Store)]
    if len(made) != 1 or not _is_harmless_value(getattr(source.parents[made[0]], "value", None), absent):
        return False
    rounds = _rounds(mapping, at, source)
    for name in names:
        in_loop = not rounds.isdisjoint(source.above(name))
        if name is made[0] or name is mapping or not (name.lineno < mapping.lineno or in_loop):
            continue
        if not _is_harmless(name, source, absent) and (in_loop or not _in_other_branch(name, at, source)):
            return False
    return made[0].lineno < mapping.lineno


def is_asked(mapping: ast.expr | None, at: ast.expr | ast.stmt, source: Source) -> bool:
    """Whether the mapping is asked for the flag after `at`: to who asks, off and absent are not the same."""
    if mapping is None:
        return False
    rounds = _rounds(mapping, at, source)
    for node in ast.walk(_scope(at, source)):
        if isinstance(node, ast.Constant) and node.value == FLAG and (asked := _asked(node, source)) is not None:
            in_loop = not rounds.isdisjoint(source.above(node))
            comes_after = in_loop or (node.lineno > at.lineno and not _in_other_branch(node, at, source))
            if comes_after and ast.unparse(asked) == ast.unparse(mapping):
                return True
    return False


def name_of(value: ast.expr, source: Source) -> ast.expr | None:
    """What a new mapping is called."""
    parent = source.parents[value]
    if isinstance(parent, ast.IfExp):
        return name_of(parent, source)
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        return parent.targets[0]
    return parent.target if isinstance(parent, ast.AnnAssign) else None


def _asked(flag: ast.Constant, source: Source) -> ast.expr | None:
    """The mapping that is asked, if this is no place that only puts the flag in or takes it out."""
    parent = source.parents[flag]
    if isinstance(parent, ast.Subscript):
        return None if isinstance(parent.ctx, ast.Store) else parent.value
    if isinstance(parent, ast.Compare):
        return parent.comparators[0]
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute):
        taken_out = parent.func.attr == "pop" and len(parent.args) == 2
        unused = isinstance(source.parents[parent], ast.Expr) and (taken_out or _is_default_off(parent))
        return None if unused else parent.func.value
    return None


def _is_default_off(call: ast.Call) -> bool:
    """`mapping.setdefault(key, False)`."""
    return (
        leaf(call.func) == "setdefault" and len(call.args) == 2 and not call.keywords and is_value(call.args[1], False)
    )


def _uses(mapping: ast.Name, at: ast.AST, source: Source) -> list[ast.Name]:
    names = (node for node in ast.walk(_scope(at, source)) if isinstance(node, ast.Name))
    return [node for node in names if node.id == mapping.id]


def _rounds(mapping: ast.expr, at: ast.AST, source: Source) -> set[ast.AST]:
    """The loops around `at` that the mapping outlives: what stands behind `at` comes before it in the next round."""
    uses = _uses(mapping, at, source) if isinstance(mapping, ast.Name) else []
    around_it = {above for name in uses if isinstance(name.ctx, ast.Store) for above in source.above(name)}
    return {node for node in source.above(at) if isinstance(node, _LOOPS) and node not in around_it}


def _scope(at: ast.AST, source: Source) -> ast.AST:
    return next(node for node in source.above(at) if isinstance(node, _FUNCTIONS))


def _is_harmless_value(value: ast.AST | None, absent: bool) -> bool:
    """`{"a": 1}` or `dict(a=1)`, all of whose keys can be seen, the flag not among them unless it is off."""
    if isinstance(value, ast.Dict):
        keys = [key.value if isinstance(key, ast.Constant) else None for key in value.keys]
        pairs = list(zip(keys, value.values, strict=True))
    elif isinstance(value, ast.Call) and not value.args:
        pairs = [(keyword.arg, keyword.value) for keyword in value.keywords]
    else:
        return False
    plain = isinstance(value, ast.Dict) or leaf(value.func) in _MAKERS
    return plain and all(key is not None and (key != FLAG or (is_value(v, False) and not absent)) for key, v in pairs)


def _is_harmless(name: ast.Name, source: Source, absent: bool) -> bool:
    """`mapping["other"]`, `mapping.update(other=...)`, `f(**mapping)`."""
    parent = source.parents[name]
    outer = source.parents[parent]
    if isinstance(parent, ast.Subscript) and isinstance(parent.slice, ast.Constant):
        off = isinstance(outer, ast.Assign) and is_value(outer.value, False)
        return parent.slice.value != FLAG or (off and not absent)
    if isinstance(parent, ast.Attribute) and isinstance(outer, ast.Call):
        if parent.attr == "update" and len(outer.args) == 1 and not outer.keywords:
            return _is_harmless_value(outer.args[0], absent)
        return _is_harmless_value(outer, absent) or (_is_default_off(outer) and not absent)
    return isinstance(parent, ast.keyword) and parent.arg is None


def _in_other_branch(name: ast.expr, at: ast.AST, source: Source) -> bool:
    """Whether one `if` decides which of the two is reached."""
    inner = {name, *source.above(name)}
    mine = {at, *source.above(at)}
    return any(
        isinstance(node, ast.If)
        and not (inner.isdisjoint(node.body) and inner.isdisjoint(node.orelse))
        and inner.isdisjoint(node.body) != mine.isdisjoint(node.body)
        for node in inner & mine
    )
