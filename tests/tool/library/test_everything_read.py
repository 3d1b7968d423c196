"""All that a model holds of a small library: its facts, and how it uses its names, as somebody read them."""

from pathlib import Path

from forms import check_forms

from mcore_unpatch.library.build import build
from mcore_unpatch.library.model import Library, Model

SOURCES, READ, MADE = (Path(__file__).parent / name for name in ("toy.txt", "toy_read.txt", "made.txt"))
TOY = Library("toy", ("toy",))


def toy() -> Model:
    """The library of toy.txt."""
    files = [part.partition("\n") for part in SOURCES.read_text().split("### ")[1:]]
    return build(TOY, "1.0", [(path, text.encode()) for path, _, text in files])


def told(model: Model) -> str:
    """Everything, name by name."""
    lines = []
    for name, fact in sorted(model.facts.items()):
        lines.append(f"{name}: {fact.kind} {fact.detail} {' '.join(fact.traits)}".strip())
        if fact.statements:
            lines.append(f"    {len(fact.statements) // 2} statements")
        if fact.kind == "class":
            lines.append(f"    of {' '.join(model.lineage(name))}")
        if (taken := model.called_with(name)) is not None:
            more = [word for word, is_any in (("*", taken.any_position), ("**", taken.any_keyword)) if is_any]
            lines.append(f"    takes {' '.join([*taken.positional, *more, *taken.keyword_only])}")
            lines.append(f"    needs {' '.join(sorted(taken.required))}; by position {sorted(taken.position_only)}")
            lines.append(f"    else {taken.defaults}")
        for use in model.uses(name):
            how = f"{use.how}{'' if use.sure else '?'} {use.call or ''} {use.condition}".strip()
            lines.append(f"    {use.place} {use.users}: {how}")
    for name in ("toy.TheLayer.hook", "toy.Config", "toy.helpers.tools", "toy.parts.Layer.shared", "toy.nothing"):
        known = model.find(name)
        lines.append(f"{name} is {known.name if known else None}")
    return "\n".join(lines) + "\n"


def test_everything_is_read() -> None:
    assert told(toy()) == READ.read_text()


def test_modules_that_a_machine_made() -> None:
    """Of the toy by small changes, each kept because it tells a fault in a condition from none."""
    check_forms(MADE, lambda texts: (f"\n{told(_module(text))}".rstrip() for text in texts))


def _module(text: str) -> Model:
    return build(TOY, "1.0", [("toy/__init__.py", b""), ("toy/a.py", f"{text}\n".encode())])
