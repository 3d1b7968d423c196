"""What a patch can become: the seam that replaces it, the rule it falls under, and the words that say so."""

from __future__ import annotations

import ast
from typing import NamedTuple

from mcore_unpatch.megatron import api, facts, layout
from mcore_unpatch.megatron.versions import show
from mcore_unpatch.paths import is_test
from mcore_unpatch.scanner.installs import Install
from mcore_unpatch.scanner.replacement import Replacement
from mcore_unpatch.scanner.resolve import Resolver
from mcore_unpatch.scanner.scopes import path_text
from mcore_unpatch.scanner.stubs import is_stubbed

_MTP_MODULE = "megatron.core.transformer.multi_token_prediction"
_SCHEDULE_OWNERS = {layout.POSTPROCESS_NODE, layout.PREPROCESS_NODE, layout.SCHEDULE_PLAN}
_LOSS_METHODS = {"compute_language_model_loss", "compute_output_layer_and_language_model_loss"}

HOOK = "pass `output_processor=` and `output_processor_context=` to `GPTModel.forward` (megatron-core 0.18+)"
HOOK_IN_PLAN = "pass `output_processor=` to `GPTModel.build_schedule_plan` (megatron-core 0.18+)"
HOOK_BESIDE_MTP = (
    "let Megatron compute the MTP loss, and return logits or log-probs from `output_processor=` (megatron-core 0.18+)"
)
DETACH = "set `config.mtp_detach_heads` (megatron-core 0.19+, one MTP layer), or add a pre-hook to each MTP layer"
CHECKPOINTED = "use Megatron's own recompute of MTP layers (broken in 0.18, fixed in megatron-core 0.19)"
MTP_OTHER = "use Megatron's own MTP loss, or register module pre-hooks on `model.mtp`"
HYBRID = "use `mcore_unpatch.compat`: HybridModel has no output hook up to megatron-core 0.19, and it needs no patch"
VALUE_HEAD = "build the model with the value head: subclass GPTModel and set `output_layer` in `__init__`"

_WITHOUT_SEAM = {
    "class-attr": "MCU601",
    "class-of-instance": "MCU601",
    "setattr": "MCU601",
    "module-attr": "MCU602",
    "instance-attr": "MCU603",
    "submodule": "MCU604",
    "sys-modules": "MCU605",
    "string-target": "MCU606",
    "source-rewrite": "MCU607",
    "patch-file": "MCU608",
}


class Verdict(NamedTuple):
    """The seam, the rule and the replacement of one patch."""

    seam: str
    rule: str
    replacement: str | None


def judge(install: Install, replacement: Replacement, resolver: Resolver) -> Verdict:
    """Classify one patch."""
    if install.mock:
        return Verdict("none", "MCU901", None)
    if _is_stub(install, resolver):
        return Verdict("none", "MCU902", None)
    owner, name = install.owner, install.attribute
    if owner in _SCHEDULE_OWNERS or owner.endswith(".PostProcessNode"):
        return Verdict("schedule", "MCU301", HOOK_IN_PLAN)
    if owner == layout.MTP_LAYER or owner.startswith(_MTP_MODULE) or name == "process_mtp_loss":
        return _mtp(name)
    if owner.endswith(".output_layer"):
        return _lm_head(install, replacement)
    if api.is_model(owner):
        return _model(install, replacement, resolver)
    return _config(install) or _nothing(install)


def _is_stub(install: Install, resolver: Resolver) -> bool:
    """A test that puts a fake in place of a whole module, or furnishes one: a mock by other means."""
    path = resolver.model.path
    if install.shape == "sys-modules" and not install.attribute:
        return is_test(path)
    return is_stubbed(resolver.project, path, install.target)


def _mtp(name: str) -> Verdict:
    if name == "_get_embeddings":
        return Verdict("mtp", "MCU202", DETACH)
    if name == "_checkpointed_forward":
        return Verdict("mtp", "MCU203", CHECKPOINTED)
    return Verdict("mtp", "MCU204", MTP_OTHER)


def _lm_head(install: Install, replacement: Replacement) -> Verdict:
    """`output_layer.forward`: a passthrough or log-probs belong to the hook, a repair of inputs does not."""
    if install.attribute != "forward" and not install.target.endswith(".output_layer"):
        return _nothing(install)
    if replacement.function is None or replacement.deals_with_output:
        return Verdict("output", "MCU103", HOOK)
    if replacement.returns_its_input and not replacement.delegates:
        return Verdict("output", "MCU103", HOOK)
    return Verdict("output", "MCU103", HOOK) if replacement.returns_its_input else _nothing(install)


def _model(install: Install, replacement: Replacement, resolver: Resolver) -> Verdict:
    name = install.attribute
    if name == "output_layer":
        return _output_layer_swapped(install, resolver)
    if name == "build_schedule_plan":
        return Verdict("schedule", "MCU301", HOOK_IN_PLAN)
    if name in _LOSS_METHODS:
        return Verdict("output", "MCU104", HOOK)
    hook = HYBRID if install.owner in {layout.HYBRID_MODEL, layout.MAMBA_MODEL} else HOOK
    if name == "_postprocess":
        if _beside_schedule_plan(install, resolver):
            return Verdict("schedule", "MCU301", HOOK_IN_PLAN)
        if replacement.deals_with_output:
            return Verdict("output", "MCU102", hook)
        if replacement.deals_with_mtp:
            return Verdict("mtp", "MCU201", HOOK_BESIDE_MTP)
        if replacement.function is None or (replacement.returns_its_input and not replacement.delegates):
            return Verdict("output", "MCU102", hook)
        if "output_layer" in replacement.words and not replacement.delegates:
            return Verdict("output", "MCU102", hook)
        return _nothing(install)
    if name == "forward":
        if _beside_schedule_plan(install, resolver):
            return Verdict("schedule", "MCU301", HOOK_IN_PLAN)
        if replacement.deals_with_output:
            return Verdict("output", "MCU101", hook)
        return _nothing(install)
    if replacement.deals_with_values and name in {"sharded_state_dict", "state_dict", "load_state_dict"}:
        return Verdict("value-head", "MCU501", VALUE_HEAD)
    return _config(install) or _nothing(install)


def _beside_schedule_plan(install: Install, resolver: Resolver) -> bool:
    """Whether the function that installs the patch also builds a schedule plan."""
    function = install.site.scope.function
    return function is not None and resolver.once(_builds_schedule_plan, function.node)


def _builds_schedule_plan(function: ast.AST) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == "build_schedule_plan" for node in ast.walk(function))


def _output_layer_swapped(install: Install, resolver: Resolver) -> Verdict:
    value = install.value
    text = resolver.once(ast.unparse, value) if value is not None else ""
    called = (path_text(value.func) or "") if isinstance(value, ast.Call) else text
    if "Identity" in called or "passthrough" in called.lower() or "hidden" in called.lower():
        return Verdict("output", "MCU103", HOOK)
    if any(word in called.lower() for word in ("lora", "quant", "fp8", "wrap", "adapter")):
        return _nothing(install)
    return Verdict("value-head", "MCU501", VALUE_HEAD)


def _config(install: Install) -> Verdict | None:
    target = install.target
    if target in facts.CONFIG_FIELDS:
        field, since = facts.CONFIG_FIELDS[target]
        return Verdict("config", "MCU401", f"set `config.{field}` (megatron-core {show(since)}+)")
    leaf = target.rpartition(".")[2]
    if ".TransformerConfig." in target or target.endswith(".TransformerConfig"):
        return Verdict("config", "MCU401", "subclass `TransformerConfig` with the extra fields (any megatron-core)")
    if "_spec" in leaf and "get_" in leaf:
        return Verdict("config", "MCU402", "pass your own `ModuleSpec` as `transformer_layer_spec` (any megatron-core)")
    symbol = api.lookup(target)
    if symbol is not None and symbol.kind == "class" and leaf.endswith(facts.SPEC_CLASS_ENDINGS):
        return Verdict("config", "MCU402", f"name your class for `{leaf}` in the `ModuleSpec` (any megatron-core)")
    if install.shape in {"module-attr", "string-target", "sys-modules"} and leaf in {"LNImpl", "LayerNormImpl"}:
        return Verdict("config", "MCU402", "name the norm in the `ModuleSpec` (any megatron-core)")
    return None


def _nothing(install: Install) -> Verdict:
    rule = _WITHOUT_SEAM[install.shape]
    if install.shape == "setattr":
        symbol = api.lookup(install.owner)
        rule = "MCU602" if symbol is not None and symbol.kind == "module" else rule
    return Verdict("none", rule, None)
