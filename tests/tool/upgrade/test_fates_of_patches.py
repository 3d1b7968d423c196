"""What a step between two releases does to a patch: every urgency, and every reason."""

import ast
import tempfile
from pathlib import Path

import pytest
from checking import Source, releases, write_files
from downloads import unpacked

from mcore_unpatch.survey.survey import ScanOptions
from mcore_unpatch.upgrade.fates import Fate, worst
from mcore_unpatch.upgrade.run import upgrade


def fates(source: Source, old: str, new: str) -> list[Fate]:
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), source)
        return upgrade([Path(folder)], ScanOptions(jobs=1), *releases(old, new)).fates


def only(source: Source, old: str, new: str) -> Fate:
    (fate,) = fates(source, old, new)
    return fate


POSTPROCESS = """
    from megatron.core.models.gpt.gpt_model import GPTModel

    def _postprocess(self, hidden_states, input_ids, position_ids, labels, rotary_pos_emb, rotary_pos_cos,
                     rotary_pos_sin, mtp_in_postprocess=None, loss_mask=None, decoder_input=None, attention_mask=None,
                     inference_params=None, packed_seq_params=None, sequence_len_offset=None,
                     runtime_gather_output=None, extra_block_kwargs=None, inference_context=None):
        return hidden_states

    GPTModel._postprocess = _postprocess
"""


def test_of_several_steps_the_worst_is_told_with_the_reasons_that_matter() -> None:
    steps = [(*releases("0.16.0", "0.16.1"),), (*releases("0.16", "0.19"),)]
    harmless, breaks = only(POSTPROCESS, "0.16.0", "0.16.1"), only(POSTPROCESS, "0.16", "0.19")
    both = worst([harmless, breaks], steps)
    assert (both.urgency, both.reasons) == ("breaks", breaks.reasons)
    assert worst([harmless, harmless], steps).reasons == harmless.reasons


GUARDED = """
    import megatron.core
    from megatron.core.models.gpt.gpt_model import GPTModel
    from packaging.version import Version

    def _postprocess(self, hidden_states):
        return hidden_states

    if Version(megatron.core.__version__) < Version("0.17"):
        GPTModel._postprocess = _postprocess
"""


def test_what_never_runs_on_the_new_release_does_not_break_there() -> None:
    fate = only(GUARDED, "0.16", "0.19")
    never = "it never runs on megatron-core 0.19.2, only on <=0.16.1"
    assert (fate.urgency, fate.reasons) == (
        "unnecessary",
        (f"{never}: what it does on 0.16.1 ends there; delete it when you no longer support those",),
    )
    assert only(GUARDED.replace("<", ">="), "0.16", "0.19").urgency == "breaks"
    newer = only(GUARDED.replace("<", ">").replace("0.17", "0.19.9"), "0.16", "0.19")
    assert (newer.urgency, newer.reasons) == ("harmless", ("it never runs on megatron-core 0.19.2",))


def test_what_is_imported_on_the_way_breaks_all_the_same() -> None:
    fate = only(GUARDED.replace("import GPTModel", "import GPTModel, tie_word_embeddings_state_dict"), "0.13", "0.19")
    assert fate.urgency == "breaks"
    assert "ImportError when the file is imported" in fate.reasons[0]


CALLS_WHAT_IS_GONE = """
    from megatron.core.transformer.moe.router import TopKRouter
    from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper

    def routing(self, logits, *args, **kwargs):
        {guard}
        MTPLossLoggingHelper.save_loss_to_tracker(1, 2, 3)
        return logits

    TopKRouter.routing = routing
"""


def test_a_use_behind_a_question_is_the_authors_decision() -> None:
    source = CALLS_WHAT_IS_GONE.replace(
        "MTPLossLoggingHelper.save_loss_to_tracker(1, 2, 3)",
        "if hasattr(MTPLossLoggingHelper, 'save_loss_to_tracker'): MTPLossLoggingHelper.save_loss_to_tracker(1, 2, 3)",
    )
    assert only(source.format(guard="pass"), "0.18", "0.19").urgency == "different"


def test_a_copy_says_which_release_it_is_of_and_how_much_it_lacks() -> None:
    fate = only(backport("print(hidden_states)"), "0.18", "0.19")
    assert (fate.urgency, fate.target.kind) == ("different", "body")
    assert fate.copy is not None
    assert (fate.copy.release, fate.copy.share > 0.9, fate.copy.missing > 2) == ("0.18.0", True, True)
    assert f"lacks {fate.copy.missing} statements that came after megatron-core 0.18.2" in fate.reasons[0]


def backport(change: str = "") -> str:
    """megatron-core 0.18.2's own `_postprocess` as a patch, with a change of the team's own."""
    model = unpacked("megatron-core", "0.18.2") / "megatron/core/models/gpt/gpt_model.py"
    tree = ast.parse(model.read_text(encoding="utf-8"))
    copied = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "_postprocess")
    if change == "taken out":
        copied.body[2:3] = []
    elif change:
        copied.body.insert(1, ast.parse(change).body[0])
    head = "from megatron.core.models.gpt.gpt_model import GPTModel\n"
    return f"{head}{ast.unparse(copied)}\nGPTModel._postprocess = _postprocess\n"


@pytest.mark.parametrize(
    ("change", "urgency"), [("", "unnecessary"), ("print(1)", "harmless"), ("taken out", "harmless")]
)
def test_what_upstream_does_by_itself_now_can_be_deleted(change: str, urgency: str) -> None:
    fate = only(backport(change), "0.18.0", "0.18.2")
    assert fate.copy is not None
    assert fate.copy.upstreamed is (urgency == "unnecessary")
    assert ("delete the patch" in fate.reasons[-1]) is (urgency == "unnecessary")


@pytest.mark.parametrize(("value", "urgency"), [
    ("elsewhere.forward", "different"),
    ("made()", "different"),
    ("lambda self, *args, **kwargs: None", "different"),  # read, and without the change
    ("wrap(GPTModel.forward)", "harmless"),
])  # fmt: skip
def test_a_replacement_that_is_not_read_is_not_called_harmless(tmp_path: Path, value: str, urgency: str) -> None:
    source = f"""
        import functools
        import elsewhere
        from elsewhere import made
        from megatron.core.models.gpt.gpt_model import GPTModel

        def wrap(original):
            @functools.wraps(original)
            def inner(*args, **kwargs):
                return original(*args, **kwargs)
            return inner

        GPTModel.forward = {value}
    """
    write_files(tmp_path, source)
    (fate,) = upgrade([tmp_path], ScanOptions(jobs=1), *releases("0.16.1", "0.19.2")).fates
    assert fate.urgency == urgency
    assert ("is not read here" in fate.reasons[0]) is value.startswith(("elsewhere", "made"))


@pytest.mark.parametrize(("body", "told"), [
    ("made = list(real(*args, **kwargs))\n    return tuple(made[:0]) + (made[2],)", True),
    ("made = list(real(*args, **kwargs))\n    print(made[0])\n    return tuple(made)", False),
    ("return real(*args, **kwargs)[1]", True),
    ("made = real(*args, **kwargs)\n    return tuple(made)", False),
    ("made = real(*args, **kwargs)\n    made['model'] = {}\n    return made", False),
])  # fmt: skip
def test_a_list_of_what_the_original_gives_takes_any_number(tmp_path: Path, body: str, told: bool) -> None:
    """Another number of values matters to who asks for one by its place, other than the first."""
    head = "from megatron.core.models.gpt.gpt_model import GPTModel\nreal = GPTModel._preprocess\n"
    write_files(tmp_path, f"{head}def ours(*args, **kwargs):\n    {body}\nGPTModel._preprocess = ours\n")
    (fate,) = upgrade([tmp_path], ScanOptions(jobs=1), *releases("0.17.0", "0.19.2")).fates
    assert any("takes the result of the original apart" in reason for reason in fate.reasons) is told


GPT_FORWARD = "megatron.core.models.gpt.gpt_model.GPTModel.forward"


@pytest.mark.parametrize(("put", "urgency", "said"), [
    (f"register({GPT_FORWARD!r}, 'nowhere.f')", "different", "is not read here"),
    ("gpt_model.GPTModel.forward = None", "harmless", "is no copy of it"),
])  # fmt: skip
def test_what_nobody_read_is_not_told_to_have_the_same_statements(
    tmp_path: Path, put: str, urgency: str, said: str
) -> None:
    write_files(tmp_path, f"from mine import register\nfrom megatron.core.models.gpt import gpt_model\n{put}\n")
    (fate,) = upgrade([tmp_path], ScanOptions(jobs=1), *releases("0.16.1", "0.19.2")).fates
    assert (fate.urgency, said in fate.reasons[0]) == (urgency, True)


BUILDS = """
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    original = GPTModel._postprocess

    def install():
        def _postprocess(self, *args, **kwargs):
            {}
            return original(self, *args, **kwargs)
        {}
        GPTModel._postprocess = _postprocess
"""


@pytest.mark.parametrize(
    ("read", "urgency"), [("MINOR", "different"), ("TESpecProvider", "harmless"), ("None", "harmless")]
)
def test_a_value_that_a_patch_reads_is_told_where_it_is_imported(read: str, urgency: str) -> None:
    imports = "package_info import MINOR\n    from megatron.core.models.gpt.gpt_layer_specs import TESpecProvider"
    source = f"    from megatron.core.{imports}{BUILDS.format(read, 'pass')}"
    fate = only(source, "0.17.1", "0.19.2")
    assert (fate.urgency, "`MINOR` has another value" in fate.reasons[0]) == (urgency, read == "MINOR")


SCRIPT = """
    from megatron.core import utils
    from megatron.core.models.gpt.gpt_model import GPTModel

    def compare():
        utils.get_model_config(1, 2)

    GPTModel.forward = print
    {}compare()
"""


@pytest.mark.parametrize(("start", "when"), [("if __name__ == '__main__':\n        ", "run"), ("", "imported")])
def test_what_the_main_part_of_a_file_calls_raises_when_it_is_run(start: str, when: str) -> None:
    fate = only(SCRIPT.format(start), "0.17.1", "0.19.2")
    assert f": TypeError when the file is {when}" in " ".join(fate.reasons), fate.reasons


def test_an_import_that_no_release_has_says_nothing_of_the_step_to_another() -> None:
    """The Megatron in use is one that has it."""
    head = "from megatron.core.models.gpt import GPTModel\ndef f(self, *args, **kwargs): ...\n"
    source = f"{head}def install():\n    {{}}\n    GPTModel.embed = f\n"
    plain, fork = (only(source.format(one), "0.16", "0.19") for one in ("pass", "from megatron.core.nowhere import x"))
    assert (fork.urgency, fork.reasons) == (plain.urgency, plain.reasons)


WHOLE_MODULES = """
    import sys

    import ours

    sys.modules["megatron.core.parallel_state"] = ours
    RULES = {"megatron/core/distributed/finalize_model_grads.py": "-import torch\\n+import ours"}
"""
REWRITTEN = """
    import inspect

    from megatron.core.models.gpt import GPTModel

    exec(inspect.getsource(GPTModel.forward).replace("a", "b"))
"""


def test_what_stands_for_source_that_changed_is_not_called_harmless() -> None:
    unknown = "which changed: whether it fits megatron-core 0.19.2 is not known"
    told = ["it stands for a whole module", "it may rewrite the source", "it rewrites the source"]
    found = [*fates(WHOLE_MODULES, "0.13.0", "0.19"), only(REWRITTEN, "0.13.0", "0.19")]
    assert [(fate.urgency, fate.reasons) for fate in found] == [("different", (f"{one}, {unknown}",)) for one in told]
    assert {fate.urgency for fate in fates(WHOLE_MODULES, "0.19.0", "0.19.1")} == {"harmless"}
    assert [fate.finding.replacement for fate in found[:2]] == [None, None]  # the function has another answer


def test_a_method_of_what_a_spec_names_is_not_called_new() -> None:
    fate = only(
        """
    from megatron.core.transformer.attention import SelfAttention

    def install(attention: SelfAttention, ours):
        def forward(query, key, value, mask):
            return ours(query, key, value)

        attention.core_attention.forward = forward
    """,
        "0.16",
        "0.19",
    )
    whose = "`SelfAttention` builds `core_attention` from a spec, of whatever class that names"
    assert (fate.urgency, fate.reasons) == ("different", (f"{whose}: what the step does to this cannot be told",))
