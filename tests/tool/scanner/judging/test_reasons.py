"""Every `keep` has a reason of its own: what Megatron does with the name, how often it changed, what guards it."""

from pathlib import Path
from typing import Any

import pytest
from checking import CORE, GPT, check_found, found_in, write_files
from command import unpatch_process

from mcore_unpatch import pins
from mcore_unpatch.findings import reasons
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import NEWEST, RELEASES, Version

THERE = "so no other can be passed there"


def why(target: str, version: Version = NEWEST, **more: Any) -> str:
    """The reason for a patch of a name."""
    return reasons.why(Finding("MCU601", "a.py", 1, 1, 1, target, "class-attr", "", **more), version)


def cases() -> list[tuple[str, str]]:
    """Names of Megatron, and what is said of a patch of each on 0.19, as `reasons.txt` holds them."""
    text = Path(__file__).with_name("reasons.txt").read_text()
    entries = [
        " ".join(block.split("\n", 1)).split(None, 1) for block in text.split("\n\n") if not block.startswith("#")
    ]
    return [(target, " ".join(said.split())) for target, said in entries]


@pytest.mark.parametrize(("target", "said"), cases())
def test_why_it_stays_and_what_guards_it(target: str, said: str) -> None:
    assert f"{why(target)}. {reasons.outlook(target, NEWEST)}" == said


def test_an_object_of_unknown_class_is_said_to_be_one() -> None:
    said = why(f"{CORE}.transformer.module.MegatronModule.forward", confidence="possible")
    advice = "if always one of Megatron's, annotate the object with it, and a scan tells what can be done"
    assert said == f"Which class it changes is not known: {advice}"


def test_the_judged_release_speaks() -> None:
    later = f"{CORE}.transformer.transformer_block.checkpointed_forward"
    said = "has no `checkpointed_forward` in `transformer_block`, only Megatron from 0.18 on: the patch adds it"
    assert why(later, (0, 15)) == f"megatron-core 0.15 {said}"
    name = f"{CORE}.ssm.mamba_block.get_fp8_context"
    assert why(name, (0, 17)).startswith("`MambaStack`")


def test_a_way_that_came_when_the_name_was_gone_is_none() -> None:
    patch = "from megatron.core.transformer.moe.router import TopKRouter\nTopKRouter.{} = print\n"
    [gone] = found_in(patch.format("seq_aux_loss_load_balancing"), target=(0, 12))
    assert (gone.verdict, gone.evidence.split(".")[0]) == ("keep", f"`MoELayer` builds `TopKRouter` by name, {THERE}")
    [there] = found_in(patch.format("gating"), target=(0, 12))
    assert "name a subclass of `TopKRouter` as `MoESubmodules.router`" in there.evidence


def test_where_the_module_is_gone_nothing_is_added() -> None:
    calls = f"{CORE}.dist_checkpointing.strategies.base.async_calls"
    assert why(calls, (0, 18)).endswith("has no `async_calls` in `base`, only Megatron up to 0.16: the patch adds it")
    assert why(calls, (0, 19)) == "megatron-core 0.19 has no `base.async_calls`, only Megatron up to 0.16"


def test_what_no_release_has_is_told_from_where_it_is_missing() -> None:
    said = "megatron-core 0.12 has no `{}` in `{}`: what it changes is not known"
    twice = f"{CORE}.distributed.distributed_data_parallel.DistributedDataParallel.DistributedDataParallel.__init__"
    assert why(twice, (0, 12)) == said.format("DistributedDataParallel", "DistributedDataParallel")
    assert why(f"{CORE}.transformer.nothing.Class.method", (0, 12)) == said.format("nothing", "transformer")
    part = f"{GPT}.output_layer.forward"  # of a module that objects hold
    assert why(part) == "`GPTModel.__init__` sets `output_layer` itself"


def test_another_name_of_a_class_is_told_as_the_class() -> None:
    said = "`MultiTokenPredictionLayer` builds `{}` by name; a subclass helps only where a ModuleSpec names it"
    stack = f"{CORE}.ssm.mamba_block.MambaStack.forward"
    assert (why(stack), why(stack, (0, 17))) == (said.format("HybridStack"), said.format("MambaStack"))


def test_pin_is_named_where_it_can_pin() -> None:
    """The same question, asked of the whole history as `unpatch pin` does."""
    newest = known.model(RELEASES[-1])
    names = sorted(known.atlas().lines)[::97]
    names += [f"{GPT}.{name}" for name in ("sharded_state_dict", "named_modules", "nothing", "config")]
    differ = [
        name for name in names if bool(reasons.guard(name, NEWEST)) != (pins.pin(name, [newest], True) is not None)
    ]
    assert differ == []


def test_a_keep_says_it_all_in_a_few_words() -> None:
    finding = check_found(
        "from megatron.core import parallel_state\nparallel_state.create_group = print\n", verdict="keep"
    )
    why = f"`parallel_state` and another class or module call it by name, {THERE}"
    why += "; no effect in `initialize` if imported before"
    assert finding.evidence == f"{why}. Changed in 0.15; `unpatch pin` tells when it changes again."


def test_a_copy_that_is_replaced_as_well_is_reached() -> None:
    source = "from megatron.core import optimizer\noptimizer.get_megatron_optimizer = print\n"
    both = f"{source}from megatron.training import training\ntraining.get_megatron_optimizer = print\n"
    assert "; no effect in `training.training` if imported before" in found_in(source)[0].evidence
    assert "no effect" not in found_in(both)[0].evidence


def test_a_package_has_its_copy_before_a_part_of_it_can_be_patched() -> None:
    [finding] = found_in("from megatron.training import training\ntraining.get_model = print\n")
    assert "; no effect in `megatron.training`. " in finding.evidence


def test_who_takes_a_name_from_the_package_never_sees_a_patch_of_its_part() -> None:
    """Whenever that is imported: `arguments` has it from `megatron.core.transformer`."""
    config = f"{CORE}.transformer.transformer_config"
    said = why(f"{config}.MLATransformerConfig", (0, 17))
    assert said.endswith("; no effect in `arguments` and 3 more, nor in `attention` and 2 more if imported before")
    both = reasons.why(
        Finding("MCU602", "a.py", 1, 1, 1, f"{config}.MLATransformerConfig", "module-attr", ""),
        (0, 17),
        frozenset([f"{CORE}.transformer.MLATransformerConfig"]),  # which gives them the new one
    )
    assert both.endswith("; no effect in `arguments` and 5 more if imported before")
    assert "no effect in `training.training` if imp" in why(f"{CORE}.parallel_state.destroy_model_parallel", (0, 12))


def test_each_dataclass_has_a_constructor_of_its_own() -> None:
    config = f"{CORE}.optimizer.optimizer_config.OptimizerConfig"
    own = "builds subclasses of `OptimizerConfig`, which have an `__init__` of their own: it does not reach them"
    assert own in why(f"{config}.__init__", (0, 17))
    assert why(f"{config}.__post_init__", (0, 17)).endswith(f"builds subclasses of `OptimizerConfig` by name, {THERE}")
    ddp = f"{CORE}.distributed.distributed_data_parallel_config.DistributedDataParallelConfig.__init__"
    assert "does not reach" not in why(ddp, (0, 17))


def test_what_an_argument_takes_the_place_of() -> None:
    parse = "megatron.training.initialize.parse_args"
    assert why(parse, (0, 17)) == "`initialize` calls it by name, unless `parsed_args` is given"
    assert THERE not in why(parse.replace("initialize", "arguments"), (0, 17))  # others call it whatever they are given
    assert why("megatron.training.training.train_step", (0, 17)).endswith(THERE)


def test_who_has_a_name_of_its_own_is_no_reader_of_the_first() -> None:
    source = "from megatron.core.extensions import transformer_engine\ntransformer_engine.fused_permute = print\n"
    both = f"{source}from megatron.core.transformer.moe import moe_utils\nmoe_utils.fused_permute = print\n"
    [first, second] = found_in(both)
    said = (
        "`moe_utils` uses it as `moe_utils.fused_permute`, which this file replaces as well: this line does not reach"
    )
    assert (first.evidence.startswith(said), "as well" in second.evidence) == (True, False)
    assert "as well" not in found_in(source)[0].evidence


def test_a_package_whose_copy_all_read_is_no_reader_of_the_first() -> None:
    """All of Megatron calls `tensor_parallel.checkpoint`, which the package imported when it was loaded."""
    source = "from megatron.core import tensor_parallel\nfrom megatron.core.tensor_parallel import random\n"
    [first, second] = found_in(f"{source}random.checkpoint = print\ntensor_parallel.checkpoint = print\n")
    assert "more classes or modules use it as `tensor_parallel.checkpoint`, which this file" in first.evidence
    assert "call it by name" in second.evidence
    assert "as well" not in found_in(f"{source}random.checkpoint = print\n")[0].evidence


def test_who_builds_a_class_under_a_name_of_its_own_is_no_reader_of_the_first() -> None:
    name, source = "MoEFlexTokenDispatcher", "from megatron.core.transformer.moe import moe_layer, token_dispatcher\n"
    [first, second] = found_in(f"{source}token_dispatcher.{name} = print\nmoe_layer.{name} = print\n")
    said = f"`MoELayer` uses it as `moe_layer.{name}`, which this file replaces as well"
    assert (said in first.evidence, "as well" in second.evidence) == (True, False)


def test_a_field_of_one_object_can_be_given_to_another() -> None:
    """What is set on the class no object reads: each has its own."""
    name = f"{CORE}.dist_checkpointing.mapping.ShardedTensorFactory.merge_fn"
    [finding] = found_in(
        "from megatron.core.dist_checkpointing.mapping import ShardedTensorFactory\n"
        "def patch(factory: ShardedTensorFactory):\n    factory.merge_fn = lambda parts: parts[0]\n"
    )
    assert finding.target == name
    assert "it can be set where one is built, or given to `dataclasses.replace`" in finding.evidence


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ((0, 12), "The wheel of megatron-core 0.12 lacks megatron.training. On 0.17: "),
        ((0, 18), ""),
    ],
)
def test_a_method_of_what_nobody_builds_is_told_by_its_own_callers(version: Version, said: str) -> None:
    name = f"{CORE}.transformer.multi_token_prediction.MTPLossLoggingHelper.track_mtp_metrics"
    assert why(name, version) == f"{said}`training.training` calls it by name, {THERE}"
    config = f"{CORE}.transformer.transformer_config.TransformerConfig.__post_init__"  # which those of subclasses call
    assert why(config, version).startswith("Only the code that builds `TransformerConfig` can use a subclass")


def test_of_several_callers_the_training_is_told() -> None:
    """It is what runs; what is said of a package that a wheel lacks is said of a caller in there."""
    said = "The wheel of megatron-core 0.12 lacks megatron.training. On 0.17: `training.training` and 2 more classes"
    assert why(f"{CORE}.optimizer.get_megatron_optimizer", (0, 12)).startswith(said)


def test_a_name_that_becomes_another_name_of_what_is_called_instead() -> None:
    name = f"{CORE}.distributed.finalize_model_grads._allreduce_layernorm_grads"
    said = "Since 0.13 another name of `_allreduce_non_tensor_model_parallel_grads`, which Megatron uses instead"
    assert reasons.outlook(name, (0, 12)) == f"{said}; `unpatch pin` tells when it changes."


def test_what_a_release_does_not_have_yet_is_still_named() -> None:
    source = """
        from megatron.core.transformer.moe.router import TopKRouter
        def new(self, routing_map, padding_mask=None): ...
        TopKRouter._apply_expert_bias = new
        """
    [finding] = found_in(source)
    assert "NVIDIA/Megatron-LM#6114" in finding.evidence
    assert finding.evidence.endswith("`unpatch pin` tells when it changes.")


def test_no_reason_is_long() -> None:
    """Whatever of Megatron is patched; a few of Megatron's own names are longer than a line."""
    lengths = sorted(len(f"{why(name)}. {reasons.outlook(name, NEWEST)}") for name in sorted(known.atlas().lines)[::9])
    assert lengths[len(lengths) * 99 // 100] <= 250


def test_a_name_that_is_put_into_every_module_is_not_said_to_be_added() -> None:
    [finding] = found_in(
        """
        import sys
        def patch(apply_rotary_pos_emb):
            for k in sys.modules:
                if k.startswith("megatron.core"):
                    for target in ["apply_rotary_pos_emb"]:
                        if getattr(sys.modules[k], target, None):
                            setattr(sys.modules[k], target, apply_rotary_pos_emb)
        """
    )
    assert "adds it" not in finding.evidence
    assert "call it by name" in finding.evidence


def test_a_registry_may_reach_every_copy_of_a_name() -> None:
    """Only for what is set on its module is it known that other modules hold another copy."""
    name = f"{CORE}.parallel_state.create_group"
    [registered] = found_in(f"from mine import patches\npatches.register('{name}', print)\n")
    assert "if imported before" not in registered.evidence
    [loop] = found_in(
        f"import sys\nfrom {CORE} import parallel_state\nold = parallel_state.create_group\n"
        "for module in sys.modules.values():\n    if getattr(module, 'create_group', None) is old:\n"
        "        module.create_group = print\n"
    )
    assert "if imported before" not in loop.evidence


def test_who_decides_where_the_wheel_lacks_a_package() -> None:
    """The first release speaks whose wheel has it, if that package uses the name; else none does."""
    lacks = "The wheel of megatron-core 0.12 lacks megatron.training. On 0.17: "
    assert why(f"{CORE}.timers.Timers.log", (0, 12)) == f"{lacks}`global_vars` builds `Timers` by name, {THERE}"
    called = why(f"{CORE}.parallel_state.initialize_model_parallel", (0, 12))
    assert called.startswith(f"{lacks}`initialize` calls it by name, {THERE}")
    unread = why(f"{CORE}.datasets.indexed_dataset.IndexedDatasetBuilder.add_item", (0, 12))
    assert "as far as was read (megatron.training was not)" in unread
    assert why(f"{CORE}.parallel_state.get_model_parallel_src_rank", (0, 12)) == (
        "Nothing of megatron-core 0.12 reads it; megatron.training, which was not read, or other packages may, "
        "and code of yours that does can take another"
    )


def test_a_general_class_whose_heirs_specs_name() -> None:
    said = why(f"{CORE}.transformer.attention.Attention.flash_decode", (0, 19))
    heirs = "it is one of `SelfAttention`, `CrossAttention` or others, which ModuleSpecs name"
    assert said == f"Megatron does not build `Attention` by name; a subclass helps only where {heirs}"
    named = why(f"{CORE}.transformer.mlp.MLP.forward", (0, 19))
    assert named.startswith("`SequentialMLP` and another class or module build `MLP` by name; a subclass helps")


def test_what_specs_name_and_models_build_is_said_to_be_both() -> None:
    said = why(f"{CORE}.tensor_parallel.layers.ColumnParallelLinear", (0, 17))
    assert "name it in a ModuleSpec: yours can name another; `GPTModel` and" in said
    assert "build it by name, out of reach;" in said
    assert "out of reach" not in why(f"{CORE}.tensor_parallel.layers.RowParallelLinear", (0, 17))


def test_a_later_release_speaks_where_the_wheel_lacks_a_package() -> None:
    """As long as one holds it; else only a checkout can tell."""
    said = why("megatron.training.training.train_step", (0, 12))
    lacks = "The wheel of megatron-core 0.12 lacks megatron.training"
    assert said == f"{lacks}. On 0.17: `training.training` calls it by name, {THERE}"
    never = why("megatron.inference.text_generation.generation.generate", (0, 12))
    lacks = "The wheel of megatron-core 0.12 lacks megatron.inference"
    assert never == f"{lacks}: `unpatch scan --target-mcore PATH` tells who calls it"


def test_what_a_patch_adds_may_stand_elsewhere() -> None:
    said = why(f"{CORE}.ssm.mamba_block.MambaStack.final_layernorm", (0, 17))
    assert "has no `final_layernorm` in `MambaStack`, but in `MultiTokenPredictionLayer`: the patch adds it" in said
    assert "has no `nothing` in `MambaStack`, nor anywhere else: the patch" in why(
        f"{CORE}.ssm.mamba_block.MambaStack.nothing", (0, 17)
    )


def test_what_a_patch_adds_to_a_module_nobody_reads() -> None:
    said = why(f"{CORE}.distributed.distributed_data_parallel.register_grad_ready", (0, 12))
    assert said.endswith(
        ", but in `_ParamAndGradBucketGroup`: the patch adds it, and nothing of Megatron reads it there"
    )


def test_what_a_module_imports_and_nobody_reads_there_is_read_where_it_is_from() -> None:
    said = why(f"{CORE}.models.common.embeddings.rotary_pos_embedding._apply_rotary_pos_emb_thd", (0, 12))
    assert said.startswith("Nothing of megatron-core 0.12 reads it there, but from `rope_utils`; ")
    own = why(f"{CORE}.parallel_state.get_model_parallel_src_rank", (0, 12))
    assert own.startswith("Nothing of megatron-core 0.12 reads it; ")


def test_what_a_patch_adds_to_a_package_may_stand_in_a_module_of_it() -> None:
    package, reads = f"{CORE}.models.common.embeddings", "the patch adds it, and nothing of Megatron reads it there"
    said = why(f"{package}._rotate_half", (0, 12))
    assert said == f"megatron-core 0.12 has no `_rotate_half` in `embeddings`, but in `rope_utils`: {reads}"
    assert "rope_utils" not in why(f"{CORE}.fusions._rotate_half", (0, 12))  # that is another package


def test_a_class_that_others_of_the_module_take_as_an_argument() -> None:
    """One function of `serialization` builds the strategy, and `load` takes one as `sharded_strategy`."""
    strategy = f"{CORE}.dist_checkpointing.strategies.torch.TorchDistLoadShardedStrategy.load_sharded_metadata"
    assert why(strategy, (0, 18)).endswith("build `TorchDistLoadShardedStrategy` by name")


def test_what_is_given_its_spec_is_built_by_name_all_the_same() -> None:
    """Specs name the block on 0.19, and its builders only ask whether they do."""
    block = f"{CORE}.transformer.multi_token_prediction.MultiTokenPredictionBlock.forward"
    assert why(block, (0, 12)) == f"`GPTModel` builds `MultiTokenPredictionBlock` by name, {THERE}"
    assert why(block, (0, 19)).endswith(f"build `MultiTokenPredictionBlock` by name, {THERE}")
    assert why(f"{CORE}.transformer.mlp.MLP.forward").endswith("; a subclass helps only where a ModuleSpec names it")


def test_nobody_builds_the_base_of_all_models() -> None:
    only = "It is a method of the model itself: only the code that builds `GPTModel`"
    heirs = "`HybridModel` or another class that derives from `LanguageModule` can use a subclass"
    base = f"{CORE}.models.common.language_module.language_module.LanguageModule"
    assert why(f"{base}.sharded_state_dict") == f"{only}, {heirs}"
    assert why(f"{CORE}.models.gpt.gpt_model.GPTModel.sharded_state_dict") == f"{only} can use a subclass"


@pytest.mark.parametrize(
    ("models", "told"), [("", "a"), ("class GPTModel(LanguageModule): pass\n", "`GPTModel` or another")]
)
def test_a_source_may_have_few_models(tmp_path: Path, models: str, told: str) -> None:
    language = "models/common/language_module/language_module"
    text = f"class LanguageModule:\n    def sharded_state_dict(self, prefix): return prefix\n{models}"
    info = "MAJOR = 0\nMINOR = 18\nPATCH = 0\n"
    megatron = {"package_info.py": info, f"{language}.py": text}
    write_files(tmp_path / "source", {f"megatron/core/{name}": said for name, said in megatron.items()})
    head = f"from {CORE}.{language.replace('/', '.')} import LanguageModule\n"
    patch = "def new(self, prefix): return prefix + 'x'\nLanguageModule.sharded_state_dict = new\n"
    write_files(tmp_path / "repository", {"a.py": f"{head}{patch}"})
    asked = ("scan", "--output-format", "json", "--target-mcore", str(tmp_path / "source"))
    (found,) = unpatch_process(*asked, cwd=tmp_path / "repository").json["findings"]
    said = f"only the code that builds {told} class that derives from `LanguageModule` can use a subclass"
    assert said in found["evidence"]


def test_who_imports_a_copy_uses_it_too() -> None:
    said = why("megatron.training.utils.get_batch_on_this_cp_rank", (0, 17))
    assert said.startswith("`LLaVAModel` and another class or module call it by name")


def test_nothing_guards_an_object_of_unknown_class() -> None:
    source = "def new(self, *args):\n    return args\ndef patch(model):\n    model.forward = new\n"
    [finding] = found_in(f"import torch\nfrom {CORE} import parallel_state\n{source}", possible=True)
    assert finding.evidence.endswith("and a scan tells what can be done.")


def test_what_every_object_inherits() -> None:
    said = why(f"{CORE}.optimizer.distrib_optimizer.DistributedOptimizer.__new__", (0, 19))
    assert said.startswith("`DistributedOptimizer` inherits `__new__` from `object`. ")
    assert "builds `DistributedOptimizer` by name" in said or "build `DistributedOptimizer` by name" in said


def test_the_final_norm_is_none_of_the_layers() -> None:
    source = "from megatron.core.transformer import transformer_block\nclass Mine: ...\n"
    [finding] = found_in(f"{source}transformer_block.LayerNormImpl = Mine\n")
    assert "final norm in the `TransformerBlockSubmodules`" in finding.evidence


def test_a_class_that_is_built_through_its_package() -> None:
    said = why(f"{CORE}.tensor_parallel.layers.ColumnParallelLinear._forward_impl", (0, 17))
    assert "build `ColumnParallelLinear` by name; a subclass helps only where a ModuleSpec names it" in said


def test_every_module_that_holds_a_copy_counts() -> None:
    name = f"{CORE}.models.common.embeddings.rope_utils.apply_rotary_pos_emb"
    release = known.newest((0, 17))
    held = [release.find(one) for one in release.ending("apply_rotary_pos_emb") if one != name]
    copies = sum(one is not None and one.name == name for one in held)
    said = why(name, (0, 17)).partition("; no effect ")[2]
    assert (said, copies) == ("in `embeddings` and 3 more, nor in `dynamic_context` and 2 more if imported before", 7)


def test_a_class_that_specs_name_and_code_builds_too_is_built_by_name() -> None:
    said = why(f"{CORE}.tensor_parallel.layers.ColumnParallelLinear.__class__", (0, 17))
    assert "modules build `ColumnParallelLinear` by name; a subclass helps only where a ModuleSpec names it" in said
    assert "Megatron does not build" not in said
    assert said.startswith("It makes a built `ColumnParallelLinear` one of another class.")


def test_the_reason_is_of_a_release_on_which_the_patch_runs() -> None:
    patch = f"""
        from {CORE}.ssm import gated_delta_net
        if not hasattr(gated_delta_net, "tensor_a2a_cp2hp"):
            gated_delta_net.tensor_a2a_cp2hp = print
        """
    files = {
        "a.py": patch,
        "requirements/old.txt": "megatron-core==0.17.0",
        "requirements/new.txt": "megatron-core==0.19.2",
    }
    [finding] = found_in(files)
    assert "megatron-core 0.17.0 has no `tensor_a2a_cp2hp`" in finding.evidence


@pytest.mark.parametrize("release", [(0, 17), (0, 19)])
def test_a_class_that_is_a_default_somewhere_is_built_by_name_all_the_same(release: Version) -> None:
    said = why(f"{CORE}.transformer.module.Float16Module.forward", release)
    built, default = (
        f"`training.training` builds `Float16Module` by name, {THERE}",
        "take it by default: a subclass can",
    )
    assert said.startswith(built)
    assert (said == built, default in said) == ((True, False) if release == (0, 17) else (False, True))


def test_a_class_that_is_only_a_default_can_be_passed() -> None:
    passed = "`HybridModelConfig` by default: a subclass can be passed only where you make that call yourself"
    assert why("megatron.training.models.hybrid.HybridModelConfig.finalize", (0, 19)).endswith(passed)


def test_what_a_wheel_lacks_is_not_known_to_run() -> None:
    patch = "from megatron.training import training\ntraining.train_step = print\n"
    pins = {"requirements/old.txt": "megatron-core==0.16.1", "requirements/new.txt": "megatron-core==0.19.2"}
    [finding] = found_in({"a.py": patch, **pins})
    told = {stacks: one.outcome for one in finding.assessment.on_stacks for stacks in one.stacks}
    assert told == {"0.19.2": "runs", "0.16.1": "is not known"}


@pytest.mark.parametrize(
    ("target", "whence"),
    [
        *(
            (f"transformer.transformer_config.TransformerConfig.{name}", "made")
            for name in ("__init__", "__eq__", "__repr__")
        ),
        ("transformer.transformer_config.TransformerConfig.__str__", "object"),
        ("transformer.transformer_config.TransformerConfig.__setattr__", "object"),
        *(
            (f"models.gpt.gpt_model.GPTModel.{name}", "torch.nn.Module")
            for name in ("__setattr__", "__call__", "train")
        ),
        ("transformer.enums.AttnMaskType.__repr__", "enum.Enum"),
    ],
)
def test_where_a_method_comes_from_that_the_class_does_not_define(target: str, whence: str) -> None:
    name, owner = target.rpartition(".")[2], target.split(".")[-2]
    made = f"`{owner}` is a dataclass: Python makes its `{name}`. "
    inherited = f"`{owner}` inherits `{name}` from `{whence}`. "
    assert why(f"{CORE}.{target}").startswith(made if whence == "made" else inherited)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("parallel_state.get_pipeline_model_parallel_split_rank", "Gone since 0.14"),
        (
            "pipeline_parallel.p2p_communication.send_backward",
            (
                "Changed in 0.13, gone since 0.14 (now "
                "`megatron.core.pipeline_parallel.p2p_communication.P2PCommunicator.send_backward`)"
            ),
        ),
        (
            "optimizer.optimizer.MegatronOptimizer.get_main_grads_for_grad_norm",  # its body is a helper of another now
            (
                "Changed in 4 of 6 releases, last in 0.18, gone since 0.19 (closest to it "
                "`megatron.core.optimizer.optimizer.MegatronOptimizer._filter_grads_for_norm`)"
            ),
        ),
        ("parallel_state.get_expert_tensor_parallel_group", "Unchanged since 0.12"),
        ("optimizer.optimizer.MegatronOptimizer.step", ""),  # its subclasses have their own
        ("transformer.transformer_layer.TransformerLayerSubmodules", ""),  # fields, of which the types changed
    ],
)
def test_what_later_releases_lack_is_not_unchanged(target: str, said: str) -> None:
    assert reasons.history(f"{CORE}.{target}") == said


@pytest.mark.parametrize(
    ("target", "older", "newer"),
    [
        ("utils.get_batch_on_this_tp_rank", f"Gone since 0.18 (now `{CORE}.utils.get_batch_on_this_tp_rank`)", ""),
        ("training.train", "Changed in 0.18 and 0.19, before 0.17 not known", ""),
        ("training.get_forward_backward_func", "Changed in 0.16 and 0.19", ""),  # of megatron.core
        ("tokenizer.tokenizer.build_tokenizer", "Not there in 0.17 and later", "`unpatch pin` cannot guard it."),
    ],
)
def test_what_older_wheels_lack(target: str, older: str, newer: str) -> None:
    told = [reasons.outlook(f"megatron.training.{target}", version).partition(";")[0] for version in ((0, 12), (0, 17))]
    assert told == [older, newer or older]


def test_subclasses_that_the_judged_release_names_in_specs() -> None:
    named = "a subclass helps only where it is one of `SelfAttention`, `CrossAttention` or"
    assert f"{named} `MLASelfAttention`, which" in why(f"{CORE}.transformer.attention.Attention.__init__", (0, 12))
    assert f"{named} others, which" in why(f"{CORE}.transformer.attention.Attention.__init__")
    runs_it = "one of `SelfAttention` or `CrossAttention`, which"  # the others have a `forward` of their own
    assert runs_it in why(f"{CORE}.transformer.attention.Attention.forward", (0, 12))


def test_what_only_a_type_checker_imports_is_no_copy() -> None:
    """Nobody but `state_dict_saver` imports `FileSystemWriterAsync`, and that under `TYPE_CHECKING`."""
    target = f"{CORE}.dist_checkpointing.strategies.filesystem_async.FileSystemWriterAsync"
    assert known.newest(NEWEST).facts[target.replace("filesystem_async", "state_dict_saver")].kind == "import"
    assert reasons._held_elsewhere(target, known.newest(NEWEST)) == ""


def test_a_config_of_another_class_can_be_asked_for() -> None:
    config = f"{CORE}.transformer.transformer_config"
    taken = "takes one as `config_class`, but not with MLA or heterogeneous layers"
    assert why(f"{config}.TransformerConfig.__post_init__", (0, 19)).endswith(taken)
    assert "config_class" not in why(f"{config}.MLATransformerConfig.__post_init__", (0, 19))


def test_what_is_compiled_is_there_and_not_added() -> None:
    assert not reasons.adds(f"{CORE}.datasets.helpers_cpp", known.newest((0, 19)))
    assert reasons.adds(f"{CORE}.datasets.helpers_of_mine", known.newest((0, 19)))


def test_who_builds_it_may_be_replaced_by_the_same_file() -> None:
    training = "megatron.training.training"
    patch = Finding("MCU601", "a.py", 1, 1, 1, f"{CORE}.transformer.module.Float16Module.forward", "class-attr", "")
    alone = "`training.training` builds `Float16Module` by name, so no other can be passed there"
    assert reasons.why(patch, (0, 17), {patch.target, f"{training}.train_step"}) == alone
    beside = "; this file replaces `get_model` too, and what it puts there may take another"
    assert reasons.why(patch, (0, 17), {patch.target, f"{training}.get_model"}) == alone.partition(",")[0] + beside
    several = Finding("MCU601", "a.py", 1, 1, 1, f"{CORE}.models.gpt.gpt_model.GPTModel._preprocess", "class-attr", "")
    assert "too" not in reasons.why(several, (0, 17), {f"{training}.get_model"})
