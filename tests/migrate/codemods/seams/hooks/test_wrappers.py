"""Wrappers of `forward` in a repository of several files: who calls it directly, and what scan says."""

from __future__ import annotations

from pathlib import Path

import pytest
from planning import Result, migrate

from mcore_unpatch.editing.edits import Options
from mcore_unpatch.survey.scan import scan
from mcore_unpatch.survey.survey import ScanOptions

WRAPPER = b"""from megatron.core.models.gpt.gpt_model import GPTModel


def double(model: GPTModel):
    original = model.decoder.forward

    def doubled(*args, **kwargs):
        return original(*args, **kwargs) * 2

    model.decoder.forward = doubled
"""


def beside(text: str, path: str = "pkg/other.py") -> Result:
    return migrate({"pkg/wrapper.py": WRAPPER, path: text.encode()}, Options(unsafe_fixes=True))


@pytest.mark.parametrize(("text", "told"), [("Patched {} here", 1), ("{} runs", 0), ("Patched Other.forward", 0)])
def test_a_text_that_speaks_of_the_patch_is_told(text: str, told: int) -> None:
    said = text.format("TransformerBlock.forward").encode()
    result = migrate({"m.py": WRAPPER + b'    print("%b")\n' % said}, Options(unsafe_fixes=True))
    assert b"register_forward_hook" in result.files["m.py"]
    assert [one.text for one in result.plan.remarks] == [
        "this text still speaks of the patch of `TransformerBlock.forward`, which is gone"
    ] * told


@pytest.mark.parametrize("call", ["model.decoder.forward(x)", "self.decoder.forward(x)", "decoder.forward(x)"])
def test_stays_where_forward_is_called_directly(call: str) -> None:
    result = beside(f"def run(self, model, decoder, x):\n    return {call}\n")
    assert result.changed == set()
    (remark,) = result.plan.remarks
    assert remark.text.startswith(
        "Not rewritten: pkg/other.py:2 calls `forward` directly, where hooks do not run.\n1. "
    )


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("def run(model, x):\n    return model.encoder.forward(x)\n", "pkg/other.py"),
        ("class A(B):\n    def forward(self, x):\n        return super().forward(x)\n", "pkg/other.py"),
        ("def test_run(model, x):\n    assert model.decoder.forward(x)\n", "tests/test_run.py"),
    ],
)
def test_other_modules_and_tests_do_not_count(text: str, path: str) -> None:
    result = beside(text, path)
    assert b"model.decoder.register_forward_hook(doubled)" in result.files["pkg/wrapper.py"]


@pytest.mark.parametrize(
    ("old", "new", "because"),
    [
        ("original(*args, **kwargs) * 2", "original(*args) * 2", "does not forward all its arguments"),
        ("return original", "print(original)\n        return original", "the original for more than one call"),
        ("original(*args, **kwargs) * 2", "(print(), original(*args, **kwargs))[1]", "after something else"),
        ("    def doubled", "    @cached\n    def doubled", "is decorated"),
        ("(*args, **kwargs):", "(*args, flag, **kwargs):", "has parameters of its own"),
        (
            "    model.decoder.forward = doubled",
            "    model.decoder.forward = doubled\n    return original",
            "passes the original on",
        ),
        (
            "    original =",
            "    model = model.module\n    original =",
            "`model.decoder.forward` is not saved under one name",
        ),
        ("return original", "_module = 1\n        return original", "the name `_module` is taken"),
    ],
)
def test_what_is_not_exactly_a_hook_stays(old: str, new: str, because: str) -> None:
    text = WRAPPER.decode()
    assert old in text
    changed = text.replace(old, new, 1).encode()
    result = migrate({"pkg/wrapper.py": changed}, Options(unsafe_fixes=True))
    assert result.files["pkg/wrapper.py"] == changed
    assert [because] == [because for remark in result.plan.remarks if because in remark.text]


@pytest.mark.parametrize("read", ["weight", "bias", "parameters()", "named_parameters()", "state_dict()"])
def test_parameters_that_are_read_before_the_call_are_not_gathered_yet(read: str) -> None:
    call = "return original(*args, **kwargs)"
    before = WRAPPER.decode().replace(f"{call} * 2", f"print(model.decoder.{read})\n        {call}")
    result = migrate({"pkg/wrapper.py": before.encode()}, Options(unsafe_fixes=True))
    assert result.changed == set()
    assert any(f"`{read.removesuffix('()')}`" in remark.text for remark in result.plan.remarks)
    told = before.replace(read, "weight.dtype")
    assert (
        b"register_forward_pre_hook"
        in migrate({"pkg/wrapper.py": told.encode()}, Options(unsafe_fixes=True)).files["pkg/wrapper.py"]
    )


BOUND = """from types import MethodType
from megatron.core.models.gpt.gpt_model import GPTModel


def double(model: GPTModel):
    original = model.decoder.forward

    def doubled(self, *args, **kwargs):
        return original(*args, **kwargs) * 2

    model.decoder.forward = MethodType(doubled, model.decoder)
"""
KEPT_ON_THE_MODULE = """from types import MethodType
from megatron.core.models.gpt.gpt_model import GPTModel


def doubled(self, *args, **kwargs):
    return self._forward(*args, **kwargs) * 2


def double(model: GPTModel):
    model.decoder._forward = model.decoder.forward
    model.decoder.forward = MethodType(doubled, model.decoder)
"""
OF_THE_CLASS = """from types import MethodType
from megatron.core.models.gpt.gpt_model import GPTModel


def double(model: GPTModel):
    original = type(model.decoder).forward

    def doubled(self, *args, **kwargs):
        return original(self, *args, **kwargs) * 2

    model.decoder.forward = MethodType(doubled, model.decoder)
"""
MIXED_IN = """import torch
from megatron.core.models.gpt.gpt_model import GPTModel


class Doubled(torch.nn.Module):
    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs) * 2


def double(model: GPTModel):
    embedding = model.embedding
    embedding.__class__ = type("Embedding", (Doubled, embedding.__class__), {})
"""
BY_SETATTR = WRAPPER.decode().replace("model.decoder.forward = doubled", 'setattr(model.decoder, "forward", doubled)')


@pytest.mark.parametrize(
    ("text", "because"),
    [
        (KEPT_ON_THE_MODULE, "the wrapper is no function that is defined next to the assignment"),
        (OF_THE_CLASS, "`model.decoder.forward` is not saved under one name"),
        (MIXED_IN, "this changes the class of the module"),
        (BY_SETATTR, "it is not a plain assignment"),
    ],
)
def test_forms_that_no_public_repository_has_rewritten_have_steps(text: str, because: str) -> None:
    result = migrate({"pkg/wrapper.py": text.encode()}, Options(unsafe_fixes=True))
    assert result.changed == set()
    (said,) = [remark.text for remark in result.plan.remarks]
    assert said.startswith(f"Not rewritten: {because}.\n1. ")


def test_a_wrapper_of_another_object_stays() -> None:
    text = BOUND.replace("MethodType(doubled, model.decoder)", "MethodType(doubled, model)")
    result = migrate({"pkg/wrapper.py": text.encode()}, Options(unsafe_fixes=True))
    assert result.changed == set()
    assert any("bound to an object other than the module" in remark.text for remark in result.plan.remarks)


def test_two_wrappers_of_one_method_stay() -> None:
    """The arguments that a forward hook is given are those after the pre-hooks: not what the outer wrapper saw."""
    inner = WRAPPER.replace(b"original(*args, **kwargs) * 2", b"original(*[one / 2 for one in args], **kwargs)")
    outer = WRAPPER.replace(b"* 2", b"+ args[0]")
    result = migrate({"pkg/inner.py": inner, "pkg/outer.py": outer}, Options(unsafe_fixes=True))
    assert result.changed == set()
    said = [remark.text.partition(",")[0] for remark in result.plan.remarks]
    assert said == [f"Not rewritten: pkg/{one}.py:10 wraps the same method" for one in ("outer", "inner")]


def test_two_wrappers_that_do_not_meet_move_together() -> None:
    inner = WRAPPER.replace(b"original(*args, **kwargs) * 2", b"original(*[one / 2 for one in args], **kwargs)")
    files = {"pkg/inner.py": inner, "pkg/outer.py": WRAPPER}
    assert migrate(files, Options(unsafe_fixes=True)).changed == {*files}
    left = migrate(files, Options(unsafe_fixes=True), editable=["pkg/outer.py"])
    assert left.changed == set()
    (remark,) = [remark for remark in left.plan.remarks if remark.path == "pkg/outer.py"]
    assert "pkg/inner.py:10 wraps the same method and is not part of this migration" in remark.text


UNKNOWN = """from megatron.core import parallel_state


def double(part{annotation}, x):
{first}
    original = part.forward

    def doubled(*args, **kwargs):
        return original(*args, **kwargs) * 2

    part.forward = doubled
"""


@pytest.mark.parametrize(
    ("first", "annotation", "rewritten"),
    [
        ("    parallel_state.get_tensor_model_parallel_rank()", "", False),
        ("    part.run(x)", "", False),
        ("    part.register_buffer('seen', x)", "", True),
        ("    print(part.training)", "", True),
        ("    part.pre_process = x", "", False),  # what is set is not what it has
        ("    print(getattr(part, 'pre_process', False))", "", True),
        ("    print(x)", ": 'torch.nn.Module'", True),
        ("    print(x)", ": Node", False),
        ("    part = x.linear_fc1", "", False),  # and whether `x` is a module is not said
        ("    part = x.linear_fc1\n    x.eval()", "", True),
        ("    part = make(x)", "", False),
    ],
)
def test_what_may_be_a_module_is_one_by_what_the_code_does_with_it(
    first: str, annotation: str, rewritten: bool
) -> None:
    text = UNKNOWN.format(first=first, annotation=annotation)
    text = text.replace("double(part, x)", "double(x)") if first.startswith("    part = ") else text
    result = migrate({"pkg/wrapper.py": text.encode()}, Options(unsafe_fixes=True))
    assert (b"part.register_forward_hook(doubled)" in result.files["pkg/wrapper.py"]) is rewritten


@pytest.mark.parametrize(
    ("call", "rewritten"),
    [("model.rope.forward(x)", True), ("rope.forward(x)", False), ("self.decoder.forward(x)", False)],
)
def test_direct_calls_in_the_same_file(call: str, rewritten: bool) -> None:
    text = WRAPPER + f"\n\ndef run(self, model, rope, x):\n    return {call}\n".encode()
    assert bool(migrate({"pkg/wrapper.py": text}, Options(unsafe_fixes=True)).changed) is rewritten


BLOCK = b"""from megatron.core.transformer.transformer_block import TransformerBlock


def forward(self, x): ...


TransformerBlock.forward = forward
"""


def test_stays_where_the_class_is_patched_too() -> None:
    """The wrapper kept what the class had by then, which may be either."""
    result = migrate({"pkg/wrapper.py": WRAPPER, "pkg/block.py": BLOCK}, Options(unsafe_fixes=True))
    assert result.changed == set()
    (remark,) = [one for one in result.plan.remarks if one.path == "pkg/wrapper.py"]
    assert "pkg/block.py:7 replaces the method of the class" in remark.text


INNER = """from megatron.core.models.gpt.gpt_model import GPTModel


class Scaled(GPTModel):
    def __init__(self, *args):
        super().__init__(*args)
        original = self.output_layer.forward

        def divided(x, *a, **k):
            return original(x / 4, *a, **k)

        self.output_layer.forward = divided
"""
OUTER = WRAPPER.replace(b"model.decoder", b"model.output_layer").replace(b"* 2", b"+ args[0]")


def test_stays_where_another_wrapper_that_stays_may_be_inside() -> None:
    files = {"pkg/inner.py": INNER.encode(), "pkg/outer.py": OUTER}
    assert migrate(files, Options(unsafe_fixes=True)).changed == set()


@pytest.mark.parametrize(
    ("call", "rewritten"),
    [
        ("model.decoder.register_forward_hook(f)", False),
        ("model.decoder.register_forward_pre_hook(f)", False),
        ("part = model.decoder\n    part.register_forward_hook(f)", False),
        ("model.embedding.register_forward_hook(f)", True),
    ],
)
def test_stays_where_other_hooks_ran_around_it(call: str, rewritten: bool) -> None:
    """These were given what the wrapper returned; before a hook that comes later they are given what it gets."""
    assert bool(beside(f"def watch(model, f):\n    {call}\n").changed) is rewritten


def test_stays_where_megatron_calls_forward_directly() -> None:
    """`YarnRotaryEmbedding.get_cached_cos_sin` asks its own `forward`."""
    text = WRAPPER.replace(b"model.decoder", b"model.rotary_pos_emb")
    result = migrate({"pkg/wrapper.py": text}, Options(unsafe_fixes=True))
    assert result.changed == set()
    (remark,) = result.plan.remarks
    assert "Megatron itself calls `forward` of such a module directly" in remark.text


def test_of_a_whole_model_it_is_said_who_calls_that_directly() -> None:
    notes = {}
    for name in (b"model", b"model.decoder"):
        result = migrate({"pkg/wrapper.py": WRAPPER.replace(b"model.decoder", name)}, Options(unsafe_fixes=True))
        notes[name] = {note for edit in result.plan.edits for note in edit.notes}
    assert {one[:26] for one in notes[b"model"] - notes[b"model.decoder"]} == {"Megatron-FSDP up to 0.18 c"}


def test_tests_that_look_at_forward_itself_are_named() -> None:
    looks = (
        b"from pkg.wrapper import double\n\n\ndef test_it(model):\n    double(model)\n    model.decoder.forward(1)\n"
    )
    files = {
        "pkg/wrapper.py": WRAPPER,
        "tests/test_looks.py": looks,
        "tests/test_call.py": looks.replace(b".forward(", b"("),
        "tests/test_class.py": looks.replace(b"model.decoder.forward(", b"type(model).forward("),
        "tests/test_other.py": looks.replace(b"double", b"halve"),
        "tests/test_named.py": looks.replace(b"model.decoder.forward(", b"Model.forward("),
        "tests/test_apart.py": looks.replace(b"    model.decoder", b"\n\ndef test_more(model):\n    model.decoder"),
        "tests/test_fixture.py": looks.replace(b"    model.decoder", b"\n\ndef test_more(test_it):\n    model.decoder"),
        "tests/test_module.py": looks.replace(b"wrapper import double", b"x import wrapper").replace(
            b"    double(", b"    wrapper.double("
        ),
        "tests/test_broken.py": looks + b")\n",  # not Python: it ends no migration
    }
    remarks = migrate(files, Options(unsafe_fixes=True)).plan.remarks
    told = [(one.path, one.line) for one in remarks if "looks at `forward` itself" in one.text]
    assert told == [("tests/test_fixture.py", 9), ("tests/test_looks.py", 6), ("tests/test_module.py", 6)]


def test_scan_says_that_migrate_does_it(tmp_path: Path) -> None:
    (tmp_path / "wrapper.py").write_bytes(WRAPPER)
    (finding,) = scan([tmp_path], ScanOptions(fixes=True)).findings
    assert (finding.rule, finding.fix, finding.verdict) == ("MCU403", "unsafe", "rewrite")
