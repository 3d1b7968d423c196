"""The same patch as different people write it: each of these replaces `MLP.forward` or another name of its module."""

import pytest
from checking import CORE, GPT, check_found, check_noop, found_in

HEAD = """\
import builtins, functools, importlib, inspect, pkgutil, sys, torch, types
import megatron.core
from megatron.core.transformer import mlp
from megatron.core.transformer.mlp import MLP
from megatron.core.transformer.attention import SelfAttention
def f(self, *args): ...
def wrap(fn):
    def inner(*args): return fn(*args)
    return inner
"""
FORWARD = f"{CORE}.transformer.mlp.MLP.forward"

CERTAIN = {
    "whosever setattr": "torch.nn.Module.__setattr__(MLP(), 'forward', f)",
    "builtins": "builtins.setattr(MLP, 'forward', f)",
    "in a comprehension": "[setattr(cls, 'forward', f) for cls in (MLP,)]",
    "over several lines": "[\n    setattr(cls, 'forward', f)\n    for cls in (MLP,)\n]",
    "a dotted name": "pkgutil.resolve_name('megatron.core.transformer.mlp:MLP').forward = f",
    "a module by parts of its name": "ROOT = 'megatron.core'\n"
    "importlib.import_module(ROOT + '.transformer.mlp').MLP.forward = f",
    "a module by a formatted name": "for part in ('mlp',):\n"
    "    importlib.import_module(f'megatron.core.transformer.{part}').MLP.forward = f",
    "the package that __import__ gives": "top = __import__('megatron.core.transformer.mlp')\n"
    "top.core.transformer.mlp.MLP.forward = f",
    "a module that is loaded": "for name in ('megatron.core.transformer.mlp',):\n"
    "    module = sys.modules.get(name)\n    if module is not None:\n        module.MLP.forward = f",
    "the type is": "def g(m):\n    if type(m) is MLP: m.forward = f",
    "the type is not": "def g(m):\n    if type(m) is not MLP: return\n    m.forward = f",
    "the type is one of": "def g(m):\n    if type(m) in (MLP, SelfAttention): m.forward = f",
    "a subclass": "def g(cls):\n    if issubclass(cls, MLP): cls.forward = f",
    "a case": "def g(m):\n    match m:\n        case MLP():\n            m.forward = f",
    "one of two cases": "def g(m):\n    match m:\n        case MLP() | int() as x:\n            m.forward = f",
    "kept in a class": "class A:\n    target = MLP\n    @classmethod\n    def go(cls): cls.target.forward = f",
    "kept by an object": "class A:\n    def __init__(self, target): self.target = target\n"
    "    def go(self): self.target.forward = f\nA(MLP).go()",
    "rows of a loop": "for cls, name, fn in [(MLP, 'forward', f)]: setattr(cls, name, fn)",
    "rows under a name": "ROWS = ((MLP, f),)\ndef g():\n    for cls, fn in ROWS: cls.forward = fn",
    "a table": "for cls, fn in {MLP: f}.items(): cls.forward = fn",
    "a table of tables": "NEW = {MLP: {'forward': f}}\nfor cls, members in NEW.items():\n"
    "    for name, fn in members.items(): setattr(cls, name, fn)",
    "two lists": "for cls, fn in zip([MLP], [f]): cls.forward = fn",
    "objects with fields": "import typing\nclass Row(typing.NamedTuple):\n    cls: type\n    name: str\n    new: int\n"
    "for row in [Row(MLP, 'forward', f)]: setattr(row.cls, row.name, row.new)",
    "a library by a dotted name": "import wrapt\n"
    "@wrapt.patch_function_wrapper('megatron.core.transformer.mlp', 'MLP.forward')\n"
    "def g(wrapped, instance, args, kwargs): ...",
    "a table that is handed over": "from nowhere import replace_all\n"
    "replace_all({'megatron.core.transformer.mlp.MLP.forward': f})",
    "a mock under another name": "from unittest import mock as m\nm.patch.object(MLP, 'forward', f).start()",
    "a mock's module under another name": "import unittest.mock as um\num.patch.object(MLP, 'forward', f).start()",
    "patch under another name": "from unittest.mock import patch as P\nP.object(MLP, 'forward', f).start()",
    "patch by a path, under another name": "from unittest.mock import patch as P\n"
    "with P('megatron.core.transformer.mlp.MLP.forward', f): print()",
    "patch.object by a name": "from unittest.mock import patch\npo = patch.object\npo(MLP, 'forward', f).start()",
    "setattr under another name": "from builtins import setattr as put\nput(MLP, 'forward', f)",
    "partial under another name": "from functools import partial as P\nP(setattr, MLP, 'forward')(f)",
    "a name in pieces": "setattr(MLP, 'for' 'ward', f)",
    "a row that is unpacked": "for row in [(MLP, 'forward', f)]: setattr(*row)",
    "a row by its numbers": "for p in [(MLP, 'forward', f)]: setattr(p[0], p[1], p[2])",
    "a row by its keys": "for p in [{'cls': MLP, 'name': 'forward', 'fn': f}]: setattr(p['cls'], p['name'], p['fn'])",
    "a row that is a dict": "for p in [dict(cls=MLP, name='forward', fn=f)]: setattr(p['cls'], p['name'], p['fn'])",
    "rows that are counted": "for i, (cls, fn) in enumerate([(MLP, f)]): cls.forward = fn",
    "rows from the end": "ROWS = [(MLP, 'forward', f)]\nfor c, n, v in reversed(ROWS): setattr(c, n, v)",
    "an annotation with more": "from typing import Annotated\ndef g(m: Annotated[MLP, 'x']): m.forward = f",
    "a bound": "from typing import TypeVar\nT = TypeVar('T', bound=MLP)\ndef g(m: T): m.forward = f",
    "a path that is set": "from nowhere import set_attr\nset_attr('megatron.core.transformer.mlp.MLP.forward', f)",
}


@pytest.mark.parametrize("form", CERTAIN)
def test_certain(form: str) -> None:
    check_found(f"{HEAD}{CERTAIN[form]}\n", target=FORWARD, confidence="certain")


LIKELY = {
    "a library by an object": "import wrapt\nwrapt.wrap_function_wrapper(mlp, 'MLP.forward', f)",
    "a library with a class": "import gorilla\ngorilla.apply(gorilla.Patch(MLP, 'forward', f))",
    "a decorator of another": "import gorilla\n@gorilla.patch(MLP)\ndef forward(self, x): ...",
    "a book of patches": "BOOK = []\ndef patches(cls, name=None):\n    def inner(fn):\n"
    "        BOOK.append((cls, name or fn.__name__, fn))\n        return fn\n    return inner\n"
    "@patches(MLP)\ndef forward(self, x): ...",
}


@pytest.mark.parametrize("form", LIKELY)
def test_likely(form: str) -> None:
    check_found(f"{HEAD}{LIKELY[form]}\n", target=FORWARD, confidence="likely")


def test_each_row_is_a_patch_of_its_own() -> None:
    rows = "for cls, name in ((MLP, 'forward'), (SelfAttention, 'sharded_state_dict')): setattr(cls, name, f)"
    assert [finding.target for finding in found_in(f"{HEAD}{rows}\n")] == [
        f"{CORE}.transformer.attention.SelfAttention.sharded_state_dict",
        FORWARD,
    ]


@pytest.mark.parametrize(
    "statement, target",
    [
        ("MLP.forward.__code__ = f.__code__", FORWARD),
        ("MLP.forward.__defaults__ = (None,)", FORWARD),
        ("MLP.forward.__signature__ = inspect.signature(f)", FORWARD),
        (
            "mlp.TransformerConfig.__dataclass_fields__['a'] = f",
            f"{CORE}.transformer.transformer_config.TransformerConfig.a",
        ),
        ("MLP.__bases__ = (object,)", f"{CORE}.transformer.mlp.MLP.__bases__"),
        ("MLP.forward.__globals__['bias_swiglu_impl'] = f", f"{CORE}.transformer.mlp.bias_swiglu_impl"),
        ("exec('class MLP: ...', mlp.__dict__)", f"{CORE}.transformer.mlp.MLP"),
        ("exec(open('a').read(), vars(mlp))", f"{CORE}.transformer.mlp.*"),
    ],
)
def test_parts_of_a_function_and_of_a_namespace(statement: str, target: str) -> None:
    check_found(f"{HEAD}{statement}\n", target=target)


POSSIBLE = {
    "a step": "def g(optimizer): optimizer.step = f",
    "a step that is wrapped": "def g(optimizer, book): optimizer.step = book.wrapped(optimizer.step, 1)",
    "setattr": "def g(model):\n    for name, m in model.named_modules(): setattr(m, 'forward', types.MethodType(f, m))",
    "a function": "def g(model):\n    for m in model.modules(): setattr(m, 'compute_language_model_loss', f)",
    "wrapped": "def g(model):\n    for m in model.modules(): m.forward = torch.compile(m.forward)",
    "partial": "def g(model):\n    for m in model.modules(): m.forward = functools.partial(f, m)",
    "a head by one of several names": "def g(hf):\n    for name in ['lm_head', 'output_layer']:\n"
    "        getattr(hf, name).forward = f.__get__(hf)",
    "all classes of a module": "for name, cls in inspect.getmembers(mlp): cls.forward = wrap(cls.forward)",
}


@pytest.mark.parametrize("form", POSSIBLE)
def test_possible(form: str) -> None:
    check_found(f"{HEAD}{POSSIBLE[form]}\n", confidence="possible", options={"possible": True})


NONE = {
    "a mark": "def g(model):\n    for m in model.modules(): setattr(m, '_mine', True)",
    "one's own object": "class A:\n    def forward(self): ...\na = A()\nsetattr(a, 'forward', f)",
    "one's own bases": "class A(MLP): ...\nA.__bases__ = (MLP,)",
    "a method that Megatron lacks, of one's own": "class A(MLP): ...\na = A()\na.set_input = f.__get__(a)",
    "a special method that it lacks": "from megatron.core.transformer import TransformerConfig\n"
    "def g(c: TransformerConfig): c.__io__ = f",
    "another's name": "import nowhere\nnowhere.replace(MLP, 'of_nobody', f)",
    "a question": "import nowhere\nnowhere.is_patched(MLP, 'forward')",
    "another namespace": "exec('x = 1', vars(sys))",
    "data that is passed on": "def g(model):\n    for m in model.modules(): m.num_layers = max(1, m.num_layers)",
    "a function for another class": "def load(adam: torch.optim.Optimizer, state): ...\n"
    "def g(inner): setattr(inner, 'load_state_dict', types.MethodType(load, inner))",
    "a field of the arguments": "def g(args): args.activation_func = functools.partial(f, 1)",
    "a method of one's own subclass": "class A(MLP): ...\nA.forward = f",
    "a row of another's": "class A: ...\nfor row in [(A, 'forward', f)]: setattr(*row)",
    "another's patch under another name": "from nowhere import patch as P\nP.object(MLP, 'of_nobody', f)",
    "another's modules": "from nowhere import modules\nmodules['megatron.core.transformer.mlp'] = f",
    "another bound": "from typing import TypeVar\nclass A: ...\nT = TypeVar('T', bound=A)\ndef g(m: T): m.forward = f",
    "names of its own": "exec('x = 1', mlp.__dict__, {})",
}


@pytest.mark.parametrize("form", NONE)
def test_no_patch(form: str) -> None:
    check_noop(f"{HEAD}{NONE[form]}\n", possible=True)


def test_each_loaded_module_by_its_name() -> None:
    check_found(
        f"{HEAD}for k in sys.modules:\n    if k.startswith('megatron'):\n"
        "        for name in ['fused_apply_mla_rope_for_q']: setattr(sys.modules[k], name, f)\n",
        shape="sys-modules",
        line=12,
    )


def test_one_statement_for_several_modules_is_one_patch() -> None:
    finding = check_found(
        f"{HEAD}for name in ('megatron.core.transformer.mlp', 'megatron.core.transformer.attention'):\n"
        "    importlib.import_module(name).MegatronModule = f\n",
        target=f"{CORE}.transformer.mlp.MegatronModule",
    )
    assert "and in 1 more module" in finding.message


def test_a_registry_hands_the_original_to_a_factory() -> None:
    source = """
        def {}(fn):
            def wrapped(self, *args, **kwargs): return fn(self, *args, **kwargs)
            return wrapped
        register_patch('megatron.core.models.gpt.gpt_model.GPTModel.forward', {})
        """
    for made in ("wrapped", "ours.again(wrapped)"):
        again = source.format("forward_wrapper", "forward_wrapper").replace("return wrapped\n", f"return {made}\n")
        assert "TypeError" not in check_found(again, target=f"{GPT}.forward").message
    other = source.format("forward_wrapper", "forward_wrapper").replace("return wrapped\n", "return ours.again(fn)\n")
    assert "TypeError" in check_found(other, target=f"{GPT}.forward").message


def test_a_model_without_its_last_stage_has_no_output() -> None:
    source = """
        from megatron.core.models.gpt import GPTModel
        class TextEncoder(GPTModel):
            def __init__(self, config, spec, size, length):
                super().__init__(config, spec, size, length, True, {})
            def forward(self, input_ids): return super().forward(input_ids, None, None)
        """
    check_noop(source.format("False"))
    check_noop(source.format("post_process=False"))
    check_found(source.format("True"), target=f"{GPT}.forward", rule="MCU105")


def test_a_model_that_megatron_makes() -> None:
    source = "from megatron.training.training import get_model\ndef f(self): ...\n"
    for statement in ("for m in get_model(1): m.forward = f", "model = get_model(1)\nmodel[0].forward = f"):
        check_found(f"{source}{statement}\n", target=f"{GPT}.forward", confidence="likely")
    check_noop("from ours import get_model\ndef f(self): ...\nmodel = get_model(1)\nmodel[0].forward = f\n")
