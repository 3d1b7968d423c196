"""Models that keep the output hook: it is handed on where a call makes the output, and nowhere else."""

from __future__ import annotations

import re

import pytest
from planning import migrate

from mcore_unpatch.editing.edits import Options

HEAD = "import torch\nfrom megatron.core.models.gpt.gpt_model import GPTModel\n\n\n"
HOOK = "output_processor=output_processor, output_processor_context=output_processor_context"
TAKEN = "output_processor=None, output_processor_context=None"


def flat(text: str) -> str:
    """Code with each list on one line, as if no line were too long."""
    closed = re.sub(r",?\s*\n\s*\)", ")", text)
    return re.sub(r"\(\n\s+", "(", re.sub(r"(?<=,)\n\s+", " ", closed))


def made(body: str, options: Options | None = None) -> str:
    files = {"m.py": (HEAD + body).encode()}
    return migrate(files, options or Options(unsafe_fixes=True)).files["m.py"].decode().removeprefix(HEAD)


def test_megatrons_own_end_gets_it() -> None:
    ends = "class A(GPTModel):\n    def forward(self, input_ids{}):\n        return self._postprocess(input_ids{})\n"
    assert flat(made(ends.format("", ""))) == ends.format(f", {TAKEN}", f", {HOOK}")


def test_what_a_model_says_of_its_own_method_stays_true() -> None:
    body = (
        "class A(GPTModel):\n    def forward(self, input_ids):\n"
        '        """The forward of GPTModel, overridden."""\n        return self._postprocess(input_ids)\n'
    )
    assert not migrate({"m.py": (HEAD + body).encode()}, Options(unsafe_fixes=True)).plan.remarks


TYPED = """{imports}
from megatron.core.models.gpt.gpt_model import GPTModel


class A(GPTModel):
    def forward(self, ids: {type} = None{taken}):
        return super().forward(ids{given})
"""


@pytest.mark.parametrize(
    ("before", "after", "type_of_ids", "processor", "context"),
    [
        ("Optional", "Any, Callable, Optional", "Optional[int]", "Optional[Callable[..., Any]]", "Optional[Any]"),
        ("Any, Optional", "Any, Callable, Optional", "int", "Optional[Callable[..., Any]]", "Optional[Any]"),
        ("Any, Callable", "Any, Callable", "int | None", "Callable[..., Any] | None", "Any | None"),
        ("Literal", "Any, Callable, Literal", "int | None", "Callable[..., Any] | None", "Any | None"),
        ("Literal", "Literal", "int", "", ""),  # nothing says how it writes what may be None
        ("Optional\n\nAny = 1", "Optional\n\nAny = 1", "Optional[int]", "", ""),
    ],
)
def test_the_parameters_have_types_where_the_others_have(
    before: str, after: str, type_of_ids: str, processor: str, context: str
) -> None:
    typed = f", output_processor: {processor} = None, output_processor_context: {context} = None"
    files = {
        "m.py": TYPED.format(imports=f"from typing import {before}", type=type_of_ids, taken="", given="").encode()
    }
    taken, given = typed if processor else f", {TAKEN}", f", {HOOK}"
    expected = TYPED.format(imports=f"from typing import {after}", type=type_of_ids, taken=taken, given=given)
    assert flat(migrate(files, Options(unsafe_fixes=True)).files["m.py"].decode()) == flat(expected)


def test_types_are_imported_where_every_parameter_has_one() -> None:
    body = "class A(GPTModel):\n    def forward(self, ids: int | None{}):\n        return super().forward(ids{})\n"
    typed = "output_processor: Callable[..., Any] | None = None, output_processor_context: Any | None = None"
    files = {"m.py": (HEAD + body.format("", "")).encode()}
    new = migrate(files, Options(unsafe_fixes=True)).files["m.py"].decode()
    assert new.startswith("from typing import Any, Callable\n\n") and flat(new).endswith(
        body.format(f", {typed}", f", {HOOK}")
    )
    some = body.replace("ids: int | None{}", "ids: int | None, mask{}")
    assert flat(made(some.format("", ""))) == some.format(f", {TAKEN}", f", {HOOK}")


def test_the_steps_of_what_is_left_are_those_of_its_form() -> None:
    older = Options(unsafe_fixes=True, pinned=lambda _: ((0, 12), (0, 19)))
    ends = "class A(GPTModel):\n    def forward(self, ids):\n        return self._postprocess(ids)\n"
    own = "\n    def _postprocess(self, ids):\n        return ids\n"
    (passing,) = migrate({"m.py": (HEAD + ends).encode()}, older).plan.remarks
    assert passing.text.endswith("2. Pass both on in the call on line 7: Megatron takes them since 0.18.")
    first, second = migrate({"m.py": (HEAD + ends + own).encode()}, older).plan.remarks
    assert all(one.text.endswith("if there is one, where the output is made.") for one in (first, second))


HELD = (
    "class B(torch.nn.Module):\n    def __init__(self, c):\n        self.post_process = True  # its own\n"
    "        self.inner = None\n        self.inner = GPTModel(c)\n\n"
    "    def forward(self, ids{}):\n        return self.inner(ids, None, None, labels=ids{})\n"
)


@pytest.mark.parametrize("base", ["torch.nn.Module", "MegatronModule"])
def test_a_model_that_a_module_makes_gets_it(base: str) -> None:
    held = "from megatron.core.transformer.module import MegatronModule\n\n\n" + HELD.replace("torch.nn.Module", base)
    assert flat(made(held.format("", ""))) == flat(held.format(f", {TAKEN}", f", {HOOK}"))


@pytest.mark.parametrize(
    "body",
    [
        "class A(GPTModel):\n    def forward(self, ids):\n        return self.output_layer(self.decoder(ids))\n",
        (
            "class A(GPTModel):\n    def forward(self, ids):\n        return self._postprocess(ids)\n\n"
            "    def _postprocess(self, ids):\n        return ids\n"
        ),
        (
            "class A(GPTModel):\n    def forward(self, ids):\n"
            "        with patch.object(self, 'post_process', False):\n            return super().forward(ids)\n"
        ),
        (
            "class A(GPTModel):\n    def forward(self, ids):\n"
            "        self.post_process = False\n        return super().forward(ids)\n"
        ),
        HELD.format("", "").replace(
            "self.inner = GPTModel(c)", "self.inner: GPTModel = c"
        ),  # or another: most refuse it
        HELD.format("", "").replace("GPTModel(c)", "GPTModel(c)\n        self.inner = c or self.inner"),
        HELD.format("", "").replace("GPTModel(c)", "GPTModel(c)\n        self.inner.post_process = False"),
    ],
    ids=[
        "its own output",
        "its own end",
        "no output for a while",
        "no output",
        "a model that is given",
        "may be another",
        "no output of it",
    ],
)
def test_who_makes_the_output_itself_stays(body: str) -> None:
    assert made(body) == body


def test_it_stays_where_a_release_without_the_hook_may_run() -> None:
    body = "class A(GPTModel):\n    def forward(self, ids):\n        return super().forward(ids)\n"
    older = Options(unsafe_fixes=True, older=lambda _: "it is for megatron-core 0.16")
    assert made(body, older) == body
    assert made(body, Options(unsafe_fixes=True, pinned=lambda _: ((0, 12), (0, 19)))) == body
    assert made(body, Options(unsafe_fixes=True, pinned=lambda _: ((0, 18), (0, 19)))) != body


def test_a_patch_that_stays_below_would_drop_it() -> None:
    body = "class A(GPTModel):\n    def forward(self, ids):\n        return super().forward(ids)\n"
    patch = "\n\ndef ours(self, hidden, **kwargs):\n    return hidden\n\n\nGPTModel._postprocess = ours\n"
    done = migrate({"m.py": (HEAD + body).encode(), "p.py": (HEAD + patch).encode()}, Options(unsafe_fixes=True))
    assert done.files["m.py"].decode() == HEAD + body
    assert any("stays patched in p.py" in remark.text for remark in done.plan.remarks)


def test_what_names_the_hook_needs_a_release_that_has_it() -> None:
    body = "class A(GPTModel):\n    def forward(self, ids):\n        return super().forward(ids)\n"
    plan = migrate({"m.py": (HEAD + body).encode()}, Options(unsafe_fixes=True)).plan
    assert (plan.requirement, plan.dependency) == ("megatron-core>=0.18", None)


@pytest.mark.parametrize("taken", [f", {TAKEN}", ""], ids=["takes it", "will take it"])
def test_a_model_of_the_repository_that_takes_it_gets_it(taken: str) -> None:
    model = "class Mine(GPTModel):\n    def forward(self, ids, labels=None{}):\n        return super().forward(ids{})\n"
    wanted = model.format(f", {TAKEN}", f", {HOOK}")
    files = {
        "pkg/mine.py": (HEAD + model.format(taken, f", {HOOK}" if taken else "")).encode(),
        "pkg/held.py": (
            HEAD + "from pkg.mine import Mine\n\n\n" + HELD.format("", "").replace("GPTModel(c)", "Mine(c)")
        ).encode(),
    }
    done = migrate(files, Options(unsafe_fixes=True)).files
    assert flat(wanted) in flat(done["pkg/mine.py"].decode())
    held = HELD.format(f", {TAKEN}", f", {HOOK}").replace("GPTModel(c)", "Mine(c)")
    assert flat(held) in flat(done["pkg/held.py"].decode())
    assert migrate(done, Options(unsafe_fixes=True)).files == done, "a second run changes nothing"


def test_a_model_of_the_repository_that_refuses_it_does_not() -> None:
    model = "class Mine(GPTModel):\n    def forward(self, ids):\n        return self.output_layer(ids)\n"
    held = "from pkg.mine import Mine\n\n\n" + HELD.format("", "").replace("GPTModel(c)", "Mine(c)")
    files = {"pkg/mine.py": (HEAD + model).encode(), "pkg/held.py": (HEAD + held).encode()}
    assert migrate(files, Options(unsafe_fixes=True)).files == files


OWN = "class A(GPTModel):\n    def forward(self, ids{}):\n        {}\n"


@pytest.mark.parametrize(
    ("parameters", "taken", "call"),
    [
        (", /", f", /, {TAKEN}", "super().forward(ids{})"),
        ("", f", {TAKEN}", "super(A, self).forward(ids{})"),
        ("", f", {TAKEN}", "checkpoint(lambda x: super(A, self).forward(x{}), ids)"),
    ],
)
def test_it_is_taken_by_name_and_handed_on(parameters: str, taken: str, call: str) -> None:
    body = OWN.format(parameters, f"return {call.format('')}")
    assert flat(made(body)) == flat(OWN.format(taken, f"return {call.format(f', {HOOK}')}"))


def test_a_comment_stays_with_its_parameter() -> None:
    body = OWN.replace("self, ids{}", "\n        self,\n        ids,  # [b, s]\n    ").format(
        "return super().forward(ids)"
    )
    new = "  # [b, s]\n        output_processor=None,\n        output_processor_context=None,\n"
    assert flat(made(body)) == flat(body.replace("  # [b, s]\n", new).replace("forward(ids)", f"forward(ids, {HOOK})"))


TWICE = "out = super().forward(ids)\n        return out + super().forward(ids)"


@pytest.mark.parametrize(
    ("body", "because"),
    [
        (OWN.format("", "output_processor = 1\n        return super().forward(ids)"), "is another name in it"),
        (OWN.format("", TWICE), "calls the model in several places"),
        (
            OWN.format("", "if ids:\n            return self.fast(ids)\n        return super().forward(ids)"),
            "line 8 returns",
        ),
        (OWN.format("", "return checkpoint(super().forward, ids)"), "no call of `forward` or `_postprocess`"),
        (HELD.format("", "").replace("GPTModel(c)", "GPTModel(c, post_process=False)"), "is not known to take"),
        (
            HELD.format("", "").replace("GPTModel(c)", "GPTModel(c)\n        setattr(self, 'inner', c)"),
            "is not known to",
        ),
        (
            f"{HELD.format('', '')}\n\nclass C(B):\n    def __init__(self, c):\n        self.inner = c\n",
            "is not known to",
        ),
        (f"{HELD.format('', '')}\n\ndef change(b: B, c):\n    b.inner = c\n", "is not known to take"),
        (
            HELD.format("", "").replace("        return", "        self.inner.forward(ids)\n        return"),
            "several places",
        ),
    ],
)
def test_what_would_raise_or_lose_it_stays(body: str, because: str) -> None:
    done = migrate({"m.py": (HEAD + body).encode()}, Options(unsafe_fixes=True))
    assert done.files["m.py"].decode() == HEAD + body
    assert because in " ".join(remark.text for remark in done.plan.remarks)


@pytest.mark.parametrize("base", ["return self.output_layer(ids)", "return super().forward(*ids)"])
def test_a_base_of_the_repository_that_refuses_it_keeps_those_below(base: str) -> None:
    body = OWN.format("", base).replace("ids)", "*ids)", 1) + OWN.format("", "return super().forward(ids)").replace(
        "A(GPTModel)", "B(A)"
    )
    assert made(body) == body
    between = OWN.format("", "return super().forward(ids)").replace("A(GPTModel)", "B(A)")
    assert made("class A(GPTModel):\n    pass\n\n\n" + between) != between


@pytest.mark.parametrize(("dict_of", "level"), [("", "exact"), (", **(extra or {})", "behaviour")])
def test_a_dict_of_arguments_may_hold_the_hook_already(dict_of: str, level: str) -> None:
    body = (
        f"class A(GPTModel):\n    def forward(self, ids, extra=None):\n        return super().forward(ids{dict_of})\n"
    )
    made = migrate({"m.py": (HEAD + body).encode()}, Options(floor=lambda _: (0, 18)))
    assert {edit.level for edit in made.plan.edits} == {level}
    twice = "the hook is handed by name from here on: who puts it in `extra or {}` as well gets a TypeError"
    assert {note for edit in made.plan.edits for note in edit.notes} == ({twice} if dict_of else set())
