"""A finding says what breaks on the release it is judged for: the one asked for, or the one the repository pins."""

from checking import Source, check_found

from mcore_unpatch.megatron.versions import parse_version

IMPORT = "from megatron.core.models.gpt import GPTModel\n"
# The 17 parameters of GPTModel._postprocess in megatron-core 0.16.


def message(source: Source, release: str | None = None) -> str:
    """What is said of the one patch of a repository."""
    options = {"target": parse_version(release)} if release else {}
    return check_found(source, options=options).message


class TestOtherFacts:
    def test_inert_assignment(self) -> None:
        source = (
            f"{IMPORT}def patch(model: GPTModel, new):\n"
            "    model.build_schedule_plan().post_process.forward_impl = new\n"
        )
        assert "has no effect on megatron-core 0.14+" in message(source, "0.19")
        assert "has no effect" not in message(source, "0.13")


PROVIDER = """
from megatron.core.models.gpt import gpt_layer_specs
class Mine:
    def layer_norm(self, rms_norm=False, for_qk=False{}): ...
gpt_layer_specs.TESpecProvider = Mine
"""


def test_a_call_told_by_its_name_alone_raises_where_it_is_made() -> None:
    said = message(PROVIDER.format(""), "0.19.2")
    assert said.endswith(
        "`gpt_layer_specs` passes `has_residual`, which `Mine.layer_norm` does not take: "
        "TypeError on megatron-core 0.19.2 where it does"
    )
    assert "TypeError" not in message(PROVIDER.format(", has_residual=False"), "0.19.2")
