"""Every `keep` has a reason of its own: what Megatron does with the name, how often it changed, what guards it."""

from typing import Any

from checking import CORE, GPT, found_in

from mcore_unpatch import pins
from mcore_unpatch.findings import reasons
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import NEWEST, RELEASES, Version

THERE = "so no other can be passed there"


def why(target: str, version: Version = NEWEST, **more: Any) -> str:
    """The reason for a patch of a name."""
    return reasons.why(Finding("MCU601", "a.py", 1, 1, 1, target, "class-attr", "", **more), version)


def test_an_object_of_unknown_class_is_said_to_be_one() -> None:
    said = why(f"{CORE}.transformer.module.MegatronModule.forward", confidence="possible")
    advice = "if always one of Megatron's, annotate the object with it, and a scan tells what can be done"
    assert said == f"Which class it changes is not known: {advice}"


def test_pin_is_named_where_it_can_pin() -> None:
    """The same question, asked of the whole history as `unpatch pin` does."""
    newest = known.model(RELEASES[-1])
    names = sorted(known.atlas().lines)[::97]
    names += [f"{GPT}.{name}" for name in ("sharded_state_dict", "named_modules", "nothing", "config")]
    differ = [name for name in names if reasons.guard(name, NEWEST) and pins.pin(name, [newest], ["a.py"]) is None]
    assert differ == []


def test_a_copy_that_is_replaced_as_well_is_reached() -> None:
    source = "from megatron.core import optimizer\noptimizer.get_megatron_optimizer = print\n"
    both = f"{source}from megatron.training import training\ntraining.get_megatron_optimizer = print\n"
    assert "; no effect in `training.training` if imported before" in found_in(source)[0].evidence
    assert "no effect" not in found_in(both)[0].evidence


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


def test_no_reason_is_long() -> None:
    """Whatever of Megatron is patched; a few of Megatron's own names are longer than a line."""
    lengths = sorted(len(f"{why(name)}. {reasons.outlook(name, NEWEST)}") for name in sorted(known.atlas().lines)[::9])
    assert lengths[len(lengths) * 99 // 100] <= 250


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


def test_nobody_builds_the_base_of_all_models() -> None:
    only = "It is a method of the model itself: only the code that builds `GPTModel`"
    heirs = "`HybridModel` or another class that derives from `LanguageModule` can use a subclass"
    base = f"{CORE}.models.common.language_module.language_module.LanguageModule"
    assert why(f"{base}.sharded_state_dict") == f"{only}, {heirs}"
    assert why(f"{CORE}.models.gpt.gpt_model.GPTModel.sharded_state_dict") == f"{only} can use a subclass"
