"""What a step between two real releases does to the patches and subclasses of a few lines."""

import ast

import pytest
from downloads import unpacked
from rooms import Files, effects

from mcore_unpatch.effects.records import Outcome

GPT = "from megatron.core.models.gpt.gpt_model import GPTModel\n"
LAYER = "from megatron.core.transformer.transformer_layer import TransformerLayer\n"
MLP = "from megatron.core.transformer.mlp import MLP\n"
BLOCK = "from megatron.core.transformer.transformer_block import TransformerBlock\n"
ROUTER = "from megatron.core.transformer.moe.router import TopKRouter\n"
LOG = "from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper as Log\n"
EMBEDDING = "from megatron.core.models.common.embeddings.language_model_embedding import LanguageModelEmbedding\n"
SPEC = "from megatron.core.transformer.spec_utils import ModuleSpec\n"
BUILDS = f"""{GPT}{EMBEDDING}
def own(self, config, vocab_size, max_sequence_length, split=False, **kwargs): ...
def built(self, config, *args, **more):
    LanguageModelEmbedding(config, 8, 8, split=True)
GPTModel.__init__ = built
"""
SUPER = """from megatron.core.transformer.attention import SelfAttention
class Mine(SelfAttention):
    def __init__(self, config, submodules, **kwargs):
        super({}, self).__init__(config, submodules, attention_type=None, **kwargs)
"""
REGISTRY = """from megatron.core import mpu, tensor_parallel
from megatron.core.parallel_state import get_own_rank
def column(self, input_size, output_size, *, config, init_method, moe=False, **kwargs): ...
def use(config):
    mpu.get_own_rank()
    return tensor_parallel.ColumnParallelLinear(1, 2, config=config, init_method=None, moe=True)
def install(manager):
    manager.register_patch("megatron.core.parallel_state.get_own_rank", lambda: 0)
    manager.register_patch("megatron.core.tensor_parallel.layers.{}.__init__", column)
"""
WRAPPED = """def wrapper(original):
    def inner({}):
        return original()
    return inner
def install(manager):
    manager.register_patch("megatron.core.parallel_state.destroy_model_parallel", wrapper)
"""
LOOP = f"""{MLP}{BLOCK}
import functools
def logged(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        return fn(*args, **kwargs)
    return inner
for cls, names in ((MLP, ("forward",)), (TransformerBlock, ("forward", "_checkpointed_forward"))):
    for name in names:
        setattr(cls, name, logged(getattr(cls, name)))
"""
OVERRIDE = f"""{BLOCK}class Block(TransformerBlock):
    def _checkpointed_forward(self, hidden_states, *args, **kwargs):
        return super()._checkpointed_forward(hidden_states, *args, **kwargs)
"""
SCALE = f"{GPT}class Mine(GPTModel):\n    def {{}}: ...\n"
GUARDED = f"""{GPT}import megatron.core
from packaging.version import Version
def new(self, hidden_states): ...
if Version(megatron.core.__version__) {{}}:
    GPTModel._postprocess = new
"""
HOOKED = f"""{GPT}def new(self, hidden_states, *args, output_processor=None, output_processor_context=None, **more):
    return {{}}, more
GPTModel._postprocess = new
"""
APART = f"""{GPT}real = GPTModel._preprocess
def ours(*args, **more):
    made = {{}}
    return {{}}
GPTModel._preprocess = ours
"""
BUILT = f"""{MLP}{SPEC}{LAYER}from megatron.core.transformer.transformer_layer import TransformerLayerSubmodules
class Mine(MLP):
    def __init__(self, config, submodules{{}}): ...
spec = ModuleSpec(module=TransformerLayer, submodules=TransformerLayerSubmodules({{}}=ModuleSpec(module=Mine)))
"""
READS = """from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
{}
def make(config):
    spec = get_gpt_decoder_block_spec(config, True)
    for layer in spec.layer_specs:
        layer.submodules.{}.submodules
"""
FORK = "try:\n    from megatron.core.nowhere import x\nexcept ImportError:\n    {}\n"
DIFF = "--- a/megatron/core/nowhere.py\n+++ b/megatron/core/nowhere.py\n@@ -0,0 +1 @@\n+x = 1\n"

# Two releases, what is told of which line, and the file or files.
STEPS: dict[str, tuple[str, str, set[tuple[str, int]], Files]] = {
    # Whose call it is.
    "a call of Megatron's": ("0.18.2", "0.19.2", {("CALL_UNFIT", 6), ("DROPPED", 7), ("BODY_CHANGED", 7)}, BUILDS),
    "a call of what the file replaces": (
        "0.18.2",
        "0.19.2",
        {("DROPPED", 7), ("BODY_CHANGED", 7)},
        f"{BUILDS}LanguageModelEmbedding.__init__ = own\n",
    ),
    "super of its own class": ("0.16.1", "0.19.2", {("CALL_UNFIT", 4)}, SUPER.format("Mine")),
    "super of a class above": ("0.16.1", "0.19.2", set(), SUPER.format("SelfAttention")),
    "a registry that adds and replaces": (
        "0.16.1",
        "0.19.2",
        {("DROPPED", 9), ("BODY_CHANGED", 9)},
        REGISTRY.format("ColumnParallelLinear"),
    ),
    "a registry that replaces another": (
        "0.16.1",
        "0.19.2",
        {("CALL_UNFIT", 6), ("DROPPED", 9), ("BODY_CHANGED", 9)},
        REGISTRY.format("RowParallelLinear"),
    ),
    "a wrapper that a registry calls": ("0.16.1", "0.19.2", set(), WRAPPED.format("")),
    "a wrapper that takes too much": ("0.16.1", "0.19.2", {("NOT_TAKEN", 6)}, WRAPPED.format("one")),
    "one of several callers is overridden": (
        "0.16.1",
        "0.19.2",
        {("NOT_TAKEN", 2), ("BODY_CHANGED", 2)},
        {
            "a.py": f"{MLP}MLP.forward = lambda self, hidden_states: hidden_states\n",
            "b.py": f"{LAYER}class Mine(TransformerLayer):\n    def _forward_mlp(self): ...\n",
        },
    ),
    # What stops, and what comes.
    "an override that nobody calls": ("0.16.1", "0.19.2", {("STOPPED", 3)}, OVERRIDE),
    "an override that the file calls": (
        "0.16.1",
        "0.19.2",
        {("NAME_GONE", 4)},
        f"{OVERRIDE}    def forward(self, x):\n        return self._checkpointed_forward(x)\n",
    ),
    "a method that the base has now": ("0.16.1", "0.19.2", {("NEW", 3)}, SCALE.format("_scale_logits(self, logits)")),
    "and calls otherwise": ("0.16.1", "0.19.2", {("NOT_TAKEN", 3)}, SCALE.format("_scale_logits(self, logits, t)")),
    "a method of the file's own": ("0.16.1", "0.19.2", set(), SCALE.format("_rescale_logits(self, logits)")),
    "a name of a table": ("0.16.1", "0.19.2", {("NAME_GONE", 12), ("STOPPED", 12)}, LOOP),
    "a name of a table, with a default": (
        "0.16.1",
        "0.19.2",
        {("STOPPED", 12)},
        LOOP.replace("getattr(cls, name)", "getattr(cls, name, None)"),
    ),
    # Conditions.
    "on older releases": ("0.16.1", "0.19.2", {("NEVER_RUNS", 6)}, GUARDED.format('< Version("0.17")')),
    "on newer releases": ("0.16.1", "0.19.2", {("NEVER_RUNS", 6)}, GUARDED.format('> Version("0.19.9")')),
    "a question before a use": (
        "0.18.2",
        "0.19.2",
        set(),
        (
            f"{ROUTER}{LOG}def new(self, logits, *args, **more):\n    if hasattr(Log, 'save_loss_to_tracker'):\n"
            "        Log.save_loss_to_tracker(1, 2, 3)\n    return logits\nTopKRouter.routing = new\n"
        ),
    ),
    # The hook.
    "a hook that is taken and never called": ("0.18.2", "0.19.2", {("DROPPED", 4)}, HOOKED.format("1")),
    "a hook that is called": ("0.18.2", "0.19.2", set(), HOOKED.format("output_processor(1)")),
    "a method that a node took before": (
        "0.18.2",
        "0.19.2",
        {("NEVER_CALLED", 4)},
        (
            f"{GPT}def new(self, x): ...\ndef plan(model: GPTModel):\n"
            "    model.build_schedule_plan(None, None, None).post_process.forward_impl = new\n"
        ),
    ),
    # What is put there.
    "a function of elsewhere": (
        "0.16.1",
        "0.19.2",
        {("UNREAD", 3)},
        f"{GPT}import other\nGPTModel.forward = other.f\n",
    ),
    "a whole module": (
        "0.13.0",
        "0.19.2",
        {("UNREAD", 2)},
        'import sys, ours\nsys.modules["megatron.core.parallel_state"] = ours\n',
    ),
    "a result taken apart": (
        "0.17.0",
        "0.19.2",
        {("COUNT_UNKNOWN", 5)},
        APART.format("list(real(*args, **more))", "made[2]"),
    ),
    "a result handed on": ("0.17.0", "0.19.2", set(), APART.format("list(real(*args, **more))", "tuple(made)")),
    "as many as the caller unpacks": (
        "0.16.1",
        "0.19.2",
        {("BODY_CHANGED", 6)},
        (
            f"{MLP}from megatron.core import tensor_parallel\ndef new(self, hidden_states, scale=None, **more):\n"
            "    a, b, c = tensor_parallel.checkpoint(lambda x: (x, x, x), False, hidden_states)\n    return a, b\n"
            "MLP.forward = new\n"
        ),
    ),
    # What specs name.
    "a class in a slot": ("0.17.1", "0.19.2", {("NOT_TAKEN", 6)}, BUILT.format("", "mlp")),
    "a class that takes it": ("0.17.1", "0.19.2", set(), BUILT.format(", **more", "mlp")),
    "a class in no slot that is known": (
        "0.17.1",
        "0.19.2",
        set(),
        BUILT.format("", "mlp").replace("TransformerLayerSubmodules(", "dict("),
    ),
    "a spec that is none any more": ("0.17.1", "0.19.2", {("NAME_GONE", 6)}, READS.format("", "mlp")),
    "a spec that is one": ("0.17.1", "0.19.2", set(), READS.format("", "self_attention")),
    "a spec of the file's own": (
        "0.17.1",
        "0.19.2",
        set(),
        READS.format("def own(cls, one):\n    return cls(mlp=one)", "mlp"),
    ),
    # Names that no release has, or another place has.
    "a name of a fork": ("0.18.2", "0.19.2", {("MODULE_GONE", 1)}, "from megatron.core.nowhere import x\n"),
    "a name of a fork that a diff brings": (
        "0.18.2",
        "0.19.2",
        set(),
        {"a.py": "from megatron.core.nowhere import x\n", "fork.patch": DIFF},
    ),
    "a name of a fork that is caught": ("0.18.2", "0.19.2", set(), FORK.format("x = None")),
    "a name that is raised again": ("0.18.2", "0.19.2", {("MODULE_GONE", 2)}, FORK.format("raise")),
    "a name that the file adds": (
        "0.18.2",
        "0.19.2",
        set(),
        "from megatron.core.transformer.moe import moe_utils\nmoe_utils.of_our_own = len\nmoe_utils.of_our_own()\n",
    ),
    "a class by the name that both have": (
        "0.17.0",
        "0.19.2",
        set(),
        (
            "from megatron.core.ssm.gated_delta_net import GatedDeltaNet\ndef new(self, *args, **kwargs): ...\n"
            "GatedDeltaNet.forward = new\n"
        ),
    ),
    "a class by the name of one": (
        "0.19.2",
        "0.17.0",
        {("MODULE_GONE", 1)},
        "from megatron.core.ssm.gated_delta_net.gdn import GatedDeltaNet\n",
    ),
}


@pytest.mark.parametrize("what", STEPS)
def test_what_a_step_does(what: str) -> None:
    old, new, told, files = STEPS[what]
    found = effects(files, old, new)
    assert {(one.kind.name, one.place.line) for one in found} == told, found
    assert all(one.releases[-1] == new for one in found)


@pytest.mark.parametrize(
    ("old", "new", "change", "kind"),
    [
        ("0.18.0", "0.18.2", "", None),
        ("0.18.0", "0.18.2", "print(1)", None),
        ("0.18.2", "0.19.2", "print(1)", Outcome.BEHIND),
    ],
)
def test_a_copy_of_megatrons_own(old: str, new: str, change: str, kind: Outcome | None) -> None:
    model = unpacked("megatron-core", "0.18.2") / "megatron/core/models/gpt/gpt_model.py"
    functions = ast.walk(ast.parse(model.read_text(encoding="utf-8")))
    copied = next(one for one in functions if isinstance(one, ast.FunctionDef) and one.name == "_postprocess")
    copied.body[1:1] = ast.parse(change).body
    found = effects(f"{GPT}{ast.unparse(copied)}\nGPTModel._postprocess = _postprocess\n", old, new)
    assert [one.kind for one in found] == ([kind] if kind else [])


DIFFS = (
    ("utils.py", "+def get_model_config(model, ours=None):", ["own_field"]),
    ("transformer/transformer_config.py", "+    own_field: bool = False", ["ours"]),
    ("model_parallel_config.py", "+    own_field: bool = False", ["ours"]),  # a base class
    ("utils.py", "+    own_field: bool = False", ["ours", "own_field"]),  # of something else
    ("utils.py", "-def get_model_config(model, ours=None):", ["ours", "own_field"]),
    ("utils.py", "+    # ours may come", ["ours", "own_field"]),
)


@pytest.mark.parametrize(("file", "line", "missing"), DIFFS)
def test_what_a_diff_adds_is_taken(file: str, line: str, missing: list[str]) -> None:
    code = """
        from megatron.core.transformer.transformer_config import TransformerConfig
        from megatron.core.utils import get_model_config
        get_model_config(1, ours=3)
        TransformerConfig(num_layers=2, hidden_size=8, num_attention_heads=2, own_field=True)
    """
    diff = f"--- a/megatron/core/{file}\n+++ b/megatron/core/{file}\n@@ -1 +1,2 @@\n{line}\n"
    found = effects({"a.py": code, "ours.patch": diff}, "0.17.1", "0.18.2")
    assert [word for one in found if one.raises for word in one.cause.words] == missing


KEPT = f"""from types import MethodType
{LAYER}def new(self, *args, **kwargs): return {{}}
def install(layer: TransformerLayer):
    {{}}
    layer.forward = MethodType(new, layer)
"""


@pytest.mark.parametrize(
    ("keep", "read", "calls"),
    [
        ("layer._old = layer.forward", "self._old(*args, **kwargs)", True),
        ("setattr(layer, '_old', layer.forward)", "self._old(*args, **kwargs)", True),
        ("layer.__dict__['_old'] = getattr(layer, 'forward')", "self._old(*args, **kwargs)", True),
        ("layer._old = layer.other", "self._old(*args, **kwargs)", False),
        ("setattr(layer, '_old', layer.other)", "self._old(*args, **kwargs)", False),
        ("layer.table['_old'] = layer.forward", "self._old(*args, **kwargs)", False),
    ],
)
def test_an_original_that_an_attribute_keeps(keep: str, read: str, calls: bool) -> None:
    found = effects(KEPT.format(read, keep), "0.15.3", "0.19.2")
    assert [one.kind for one in found] == ([] if calls else [Outcome.BODY_CHANGED])
