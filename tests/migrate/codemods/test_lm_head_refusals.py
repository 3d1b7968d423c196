"""LM-head wrappers that look like a known form and are none: left as they are, with the reason."""

from __future__ import annotations

import textwrap

import pytest
from planning import migrate

from mcore_unpatch.codemods.edits import Options

HEAD = "import types\n\nfrom megatron.core.models.gpt.gpt_model import GPTModel\n\n\n"
PASS = "def p(hidden, weight=None, runtime_gather_output=None):\n    return hidden, None\n\n\n"

# What makes it another thing -> the code, where `p` is a plain passthrough of the module.
REFUSED = {
    "may restore the original where nothing was patched": """
        def run(model: GPTModel, ids, fused):
            original = model.output_layer.forward
            if fused:
                model.output_layer.forward = p
            try:
                return model(ids)
            finally:
                model.output_layer.forward = original
        """,
    "is assigned more than once": """
        def run(chunks: list[GPTModel], ids):
            for chunk in chunks:
                chunk.output_layer.forward = p
            out = [chunk(ids) for chunk in chunks]
            for chunk in chunks:
                del chunk.output_layer.forward
            return out
        """,
    "holds more than one statement": """
        def run(model: GPTModel, ids):
            original = model.output_layer.forward
            model.output_layer.forward = p
            try:
                return model(ids)
            finally:
                model.output_layer.forward = original; busy = False
        """,
    "inspects the layer's attributes": """
        def run(model: GPTModel, ids):
            layer = model.output_layer
            layer.forward = p
            try:
                return model(ids)
            finally:
                if layer.__dict__:
                    del layer.forward
        """,
    "asks for `forward` by name": """
        def run(model: GPTModel, ids):
            model.output_layer.forward = p
            out = model(ids)
            vars(model.output_layer).pop("forward", None)
            return out
        """,
    "passes the original on": """
        def run(model: GPTModel, ids, put_back):
            original = model.output_layer.forward
            model.output_layer.forward = p
            out = model(ids)
            put_back(model, original)
            return out
        """,
    "patches more than one layer": """
        def run(actor: GPTModel, ref: GPTModel, ids):
            actor.output_layer.forward = p
            ref.output_layer.forward = p
            return actor(ids), ref(ids)
        """,
    "the name `attach` is taken": """
        def attach(model: GPTModel):
            model.output_layer.forward = p
        """,
    "`model` is assigned more than once": """
        def run(model: GPTModel, ref):
            layer = model.output_layer
            model = ref
            layer.forward = p
            return model
        """,
    "would be made twice": """
        def run(make):
            layer = make().output_layer
            layer.forward = p
            return layer
        """,
    "a block would be left empty": """
        def run(model: GPTModel, ids):
            try:
                layer = model.output_layer
                original = layer.forward
            except AttributeError:
                return None
            layer.forward = p
            try:
                return model(ids)
            finally:
                layer.forward = original
        """,
    "`output_layer` is replaced, not `forward`": """
        import torch
        def run(model: GPTModel):
            model.output_layer = torch.nn.Identity()
        """,
    "undoes it in another function": """
        def on(model: GPTModel):
            model.output_layer.forward = p
        def off(model: GPTModel):
            del model.output_layer.forward
        """,
}
# The same for functions that are not plain passthroughs.
BODIES = {
    "does more than return its input": """
        def run(model: GPTModel, flags):
            original = model.output_layer.forward
            def f(hidden, weight=None, runtime_gather_output=None):
                if flags.fused:
                    return hidden, None
                return original(hidden.float() / flags.temperature, weight=weight)
            model.output_layer.forward = f
        """,
    "does more than return its input and keep the weight": """
        def run(model: GPTModel):
            def f(input_, weight=None, runtime_gather_output=None):
                return input_.float(), None
            model.output_layer.forward = f
        """,
    "installs it at every call of the model": """
        def step(model: GPTModel, ids, box):
            def f(x, weight=None, **kw):
                box.weight = weight
                return x, None
            model.output_layer.forward = f
            return model(ids)
        """,
    "checks whether a weight was captured": """
        def run(model: GPTModel, ids):
            seen = {}
            def f(x, weight=None, **kw):
                seen["w"] = weight
                return x, None
            model.output_layer.forward = f
            return seen["w"] is not None
        """,
    "is not a plain function of this file": """
        def run(model: GPTModel):
            model.output_layer.forward = lambda x, **kw: (x, None)
        """,
    "receives the layer, not the model": """
        def bypass(output_layer):
            def f(self, x, *args, **kw):
                return x, None
            output_layer.forward = types.MethodType(f, output_layer)
        def run(model: GPTModel):
            bypass(model.output_layer)
        """,
}


@pytest.mark.parametrize("because", [*REFUSED, *BODIES])
def test_refused_with_the_reason(because: str) -> None:
    plain = because in REFUSED
    source = HEAD + (PASS if plain else "") + textwrap.dedent((REFUSED | BODIES)[because]).lstrip()
    if because == "patches more than one layer":
        source = source.replace("ref.output_layer.forward = p", "ref.output_layer.forward = p2")
        source = source.replace(PASS, PASS + PASS.replace("def p(", "def p2("))
    compile(source, "before", "exec")
    result = migrate({"pkg/wrap.py": source.encode()}, Options(unsafe_fixes=True))
    assert result.files["pkg/wrap.py"].decode() == source
    said = [remark.text for remark in result.plan.remarks if remark.rule == "MCU103"]
    assert said
    assert any(because in text for text in said), said


def rewritten(source: str, **others: str) -> str:
    """What becomes of a module beside some others."""
    files = {
        f"pkg/{name}.py": text.encode() for name, text in {"wrap": HEAD + textwrap.dedent(source), **others}.items()
    }
    return migrate(files, Options(unsafe_fixes=True)).files["pkg/wrap.py"].decode()


WRAPPED = """
def on(model: GPTModel):
    model.output_layer.own = model.output_layer.forward
    def f(self, x, *args, **kw):
        return x, None
    model.output_layer.forward = types.MethodType(f, model.output_layer)
def off(model: GPTModel):
    model.output_layer.forward = model.output_layer.own
"""


def test_an_attribute_that_another_file_asks_for_stays() -> None:
    assert "hook_handle" in rewritten(WRAPPED)
    assert "attach" not in rewritten(WRAPPED, other="def logits(layer, x):\n    return layer.own(x)\n")


def test_other_texts_and_objects_of_the_same_name_stay() -> None:
    new = rewritten(WRAPPED + "def rows(batch, mode='own'):\n    return batch['own'], f'own {mode}'\n")
    assert "hook_handle" in new
    assert new.endswith("def rows(batch, mode='own'):\n    return batch['own'], f'own {mode}'\n")


def test_the_forward_of_another_object_is_not_this_ones() -> None:
    new = rewritten(
        """
        def run(model: GPTModel, noisy, ids):
            def f(x, weight=None, **kw):
                return x, None
            model.output_layer.forward = f
            model.decoder.forward = noisy
            try:
                return model(ids)
            finally:
                del model.decoder.forward
        """
    )
    assert "attach(model, HeadInputs())" in new
    assert "del model.decoder.forward" in new


def test_what_is_shared_or_quoted_stays() -> None:
    new = rewritten(
        """
        def run(model: GPTModel) -> "types.SimpleNamespace":
            global LAYER
            LAYER = model.output_layer
            def f(self, x, *args, **kw):
                return x, None
            LAYER.forward = types.MethodType(f, LAYER)
        """
    )
    assert "attach(model, HeadInputs())" in new
    assert "import types" in new
    assert "LAYER = model.output_layer" in new


def test_the_hook_comes_before_the_try_that_began_with_the_patch() -> None:
    new = rewritten(
        """
        def run(model: GPTModel, ids):
            original = model.output_layer.forward
            def f(x, weight=None, **kw):
                return x, None
            try:
                model.output_layer.forward = f
                return model(ids)
            finally:
                model.output_layer.forward = original
        """
    )
    assert new.split("def run", 1)[1] == textwrap.dedent(
        """\
        (model: GPTModel, ids):
            handle = attach(model, HeadInputs())
            try:
                return model(ids)
            finally:
                handle.remove()
        """
    )


def test_what_another_forward_carries_goes_with_it() -> None:
    """Inside of a replacement of the model's forward, hooks of the model do not run."""
    text = b"""from megatron.core.models.gpt.gpt_model import GPTModel

WEIGHT = None
original_forward = GPTModel.forward


def hidden_forward(self, *args, **kwargs):
    global WEIGHT
    layer = self.output_layer
    WEIGHT = layer.weight
    kept = layer.forward

    def passthrough(hidden, weight=None, runtime_gather_output=None):
        return hidden, None

    try:
        layer.forward = passthrough
        return original_forward(self, *args, **kwargs)
    finally:
        layer.forward = kept
        WEIGHT = None


GPTModel.forward = hidden_forward
"""
    result = migrate({"pkg/chunked.py": text}, Options(unsafe_fixes=True))
    assert result.changed == set()
    inner, outer = sorted(result.before, key=lambda finding: finding.line)
    assert (inner.rule, outer.rule, outer.verdict) == ("MCU103", "MCU101", "steps")
    assert outer.steps[2] == "Remove line 24 and `hidden_forward` (line 7): line 17 goes with it."
    (said,) = [remark.text for remark in result.plan.remarks if remark.line == inner.line]
    assert "`hidden_forward` carries it, which line 24 puts in the place of `GPTModel.forward`: move both" in said
    assert "flag" not in said
