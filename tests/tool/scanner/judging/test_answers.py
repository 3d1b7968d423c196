"""Every row of what is known of Megatron: its example fits, its counterexample does not, its release has the way."""

import re
from fnmatch import fnmatchcase

import pytest
from checking import found_in

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.findings.rules import rules
from mcore_unpatch.judge.traits import TRAITS
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.answers import Answer, answers
from mcore_unpatch.megatron.versions import RELEASES, parse_version

HEAD = "from megatron.core.models.gpt import GPTModel\n"


def found(text: str) -> list[Finding]:
    """The findings of an example."""
    return found_in(HEAD + text, possible=True)


each = pytest.mark.parametrize("row", answers(), ids=lambda row: row.name)


@each
def test_the_example_fits(row: Answer) -> None:
    assert row.name in [finding.answer for finding in found(row.example)]


@each
def test_the_words_are_those_of_the_place(row: Answer) -> None:
    said = [finding.evidence for finding in found(row.example) if finding.answer == row.name]
    assert not any("{" in text for text in said)


@each
def test_the_counterexample_does_not(row: Answer) -> None:
    findings = found(row.counterexample)
    assert findings, "a counterexample is a patch too"
    assert row.name not in [finding.answer for finding in findings]


@each
def test_the_release_has_it_and_none_before(row: Answer) -> None:
    """A release to come is verified by its absence: the row has to be looked at when it is out."""
    assert bool(row.since) == bool(row.verify)
    if not row.since:
        return
    name, _, parameter = f"megatron.core.{row.verify}".rstrip(")").partition("(")
    having = [
        release
        for release in RELEASES
        if (parameter in (_parameters(name, release) or ()) if parameter else known.has(name, release))
    ]
    assert {parse_version(release) for release in RELEASES if parse_version(release) >= parse_version(row.since)} == {
        parse_version(release) for release in having
    }
    assert having == list(RELEASES[len(RELEASES) - len(having) :]), "every later release has it"


def _parameters(name: str, release: str) -> tuple[str, ...] | None:
    return known.parameter_names(name, known.model(release))


@each
def test_the_words(row: Answer) -> None:
    assert row.verdict in {"steps", "delete", "keep"}
    assert bool(row.steps) == (row.verdict == "steps")
    assert not row.rule or row.rule in rules()
    assert row.since == "" or row.since in row.way or re.search("no release.* yet|no release has yet", row.way)
    assert {one.lstrip("!") for trait in row.traits for one in trait.split("|")} <= TRAITS.keys()
    assert not row.way.endswith(".")


def test_every_trait_is_asked_for() -> None:
    asked = {one.lstrip("!") for row in answers() for trait in row.traits for one in trait.split("|")}
    assert asked == TRAITS.keys()


def test_zero_mtp_layers_are_none_where_the_row_says_so() -> None:
    """The names do not show it, the source does."""
    from downloads import unpacked

    source = (unpacked("megatron-core", "0.17.1") / "megatron/core/models/gpt/gpt_model.py").read_text()
    assert re.search(r"if self\.config\.mtp_num_layers:", source)
    (row,) = (row for row in answers() if row.name == "mtp-number-of-layers")
    assert any(fnmatchcase("GPTModel._postprocess", target) for target in row.targets)


def test_the_router_hands_its_layer_number_on_where_the_row_says_so() -> None:
    from downloads import unpacked

    path = "megatron/core/transformer/moe/router.py"
    says = "self.router_replay.layer_number = layer_number"
    assert says in (unpacked("megatron-core", "0.19.2") / path).read_text()
    assert says not in (unpacked("megatron-core", "0.18.2") / path).read_text()


def test_a_hook_in_the_place_of_a_swap_that_is_put_back_is_removed_again() -> None:
    swap = """
from megatron.core.transformer.mlp import MLP
def run(mlp: MLP, x):
    original = mlp.linear_fc1.forward
    def new(*args, **kwargs):
        return original(*args, **kwargs) * 2
    mlp.linear_fc1.forward = new
    try:
        return mlp(x)
    finally:
        mlp.linear_fc1.forward = original
"""
    [one] = found(swap)
    assert (one.temporary, one.seam) == (True, "hook")
    assert "remove its handle after that" in one.evidence
    assert any("`handle.remove()`" in step for step in one.steps)


def test_a_wrapper_that_switches_mtp_off_is_not_told_to_let_megatron_compute_the_loss() -> None:
    off = """
original = GPTModel._postprocess
def new(self, *args, **kwargs):
    return original(self, *args, mtp_in_postprocess=False)
def patch(model: GPTModel):
    model._postprocess = new.__get__(model)
"""
    assert all("MTP loss" not in one.evidence for one in found(off))


def test_a_word_about_a_loss_is_not_one_of_the_output() -> None:
    """As in Model-Optimizer: the wrapper counts calls of the loss, and changes what the other stages return."""
    wrapper = """
def new(self, *args, **kwargs):
    self._lm_loss_call_count = 0
    return type(self).forward(self, *args, **kwargs)
def patch(model: GPTModel):
    model.forward = new.__get__(model)
"""
    [counted] = found(wrapper)
    assert counted.rule != "MCU101"
    [computed] = found(wrapper.replace("self._lm_loss_call_count = 0", "self.lm_loss = 0"))
    assert computed.rule == "MCU101"


def test_who_wraps_the_model_is_told_when_the_file_speaks_of_it() -> None:
    head = "def patch(model: GPTModel):\n    model.output_layer = ValueHead(1, 2)\n"
    plain, bridge, other = (
        found(text + head)[0].steps[1]
        for text in ("", "import megatron.bridge\n", "import mbridge  # or megatron-bridge\n")
    )
    assert "data parallelism. It stays" in plain
    assert "data parallelism, with Megatron-Bridge in a hook of `register_pre_wrap_hook`. It" in bridge
    assert (
        "`register_pre_wrap_hook`, with mbridge in one of the `post_model_creation_callbacks` of `get_model`. It"
        in other
    )


def test_a_value_head_has_a_way_on_each_release() -> None:
    [finding] = found("def patch(model: GPTModel):\n    model.output_layer = ValueHead(1, 2)\n")
    subclass, compat = finding.steps
    assert subclass.startswith("Where you build the model: build a subclass of its class that sets `output_layer`")
    assert compat.startswith("Or, on megatron-core 0.18+, in place of line")


def test_a_config_that_is_replaced_whole_is_more_than_its_fields() -> None:
    [finding] = found(
        "from megatron.core.transformer import transformer_config\nclass Mine: ...\n"
        "transformer_config.TransformerConfig = Mine\n"
    )
    fields, built, _ = finding.steps
    assert "what else yours does in `__post_init__`" in fields
    assert "Megatron's own `core_transformer_config_from_args` takes it as `config_class`, but with MLA" in built
    [of_mla] = found(
        "from megatron.core.transformer.transformer_config import MLATransformerConfig\ndef new(self): ...\n"
        "MLATransformerConfig.__init__ = new\n"
    )
    assert "`TransformerConfig`" not in f"{of_mla.replacement} {of_mla.steps}"


def test_what_a_patch_of_the_recompute_is_for_is_not_guessed() -> None:
    patch = "MultiTokenPredictionLayer._checkpointed_forward = new\n"
    [finding] = found(
        f"from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer\n{patch}"
    )
    assert (finding.rule, finding.replacement) == ("MCU203", "")


def test_the_setter_is_named() -> None:
    [finding] = found(
        "from megatron.core import parallel_state\nparallel_state.get_expert_model_parallel_rank = lambda: 2\n"
    )
    assert finding.steps[0].startswith("Call `parallel_state.set_expert_model_parallel_rank(...)` wherever")


@pytest.mark.parametrize(("text", "answer"), [
    ("-- write_to_wandb: done", "added-method"),
    ("write_to_wandb", "added-method"),
    ("self.write_to_wandb(names)", ""),
    ("write_to_wandb(timers)", ""),
])  # fmt: skip
def test_a_text_with_the_name_is_no_code_that_calls_it(text: str, answer: str) -> None:
    lines = "    timers.write_to_wandb = types.MethodType(new, timers)\n    timers.write_to_wandb()\n"
    head = "import types\nfrom megatron.core.timers import Timers\ndef new(self): ...\n"
    (finding,) = found_in(f"{head}def patch(timers: Timers):\n    print({text!r})\n{lines}")
    assert finding.answer == answer
