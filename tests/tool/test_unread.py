"""A name that nobody reads: to set it has no effect, unless something of the repository reads it, in whatever way."""

from pathlib import Path

import pytest
from checking import Source, found_in, write_files
from command import unpatch
from repository import Repository

SPECS = "megatron.core.models.gpt.moe_module_specs"
PATCH = """
    from megatron.core.models.gpt import moe_module_specs
    from megatron.core.transformer.moe import experts
    class Mine: ...
    experts.TEGroupedMLP = Mine
    moe_module_specs.GroupedMLP = Mine
    """


def verdict(source: Source, release: tuple[int, int] = (0, 19)) -> tuple[str, str]:
    """Of the last patch in `patches.py`."""
    finding = [one for one in found_in(source, target=release) if one.path == "patches.py"][-1]
    return finding.verdict, finding.evidence


def test_a_name_that_megatron_no_longer_has_there() -> None:
    said = "No code of megatron-core 0.19 or of this repository reads this name of `moe_module_specs`"
    assert verdict(PATCH) == ("delete", f"{said}; line 5 sets the same elsewhere.")


@pytest.mark.parametrize(
    "other", ["pass", "experts.TEGroupedMLP = print", "experts.TEGroupedMLP = object()", "OTHER = Mine"]
)
def test_a_name_that_may_be_kept_alive_for_others_stays(other: str) -> None:
    """Other packages read names that Megatron took away: a copy of a patch is none of those."""
    assert verdict(PATCH.replace("experts.TEGroupedMLP = Mine", other))[0] != "delete"


def test_a_private_name_that_megatron_only_sets() -> None:
    source = """
        import sys
        def new(model): ...
        grads = sys.modules["megatron.core.distributed.finalize_model_grads"]
        grads._allreduce_non_tensor_model_parallel_grads = new
        grads._allreduce_layernorm_grads = new
        """
    assert verdict(source)[0] == "delete"
    assert verdict(source, (0, 12))[0] == "keep"  # that release calls it


def test_what_a_release_reads_stays() -> None:
    assert verdict(PATCH, (0, 12))[0] != "delete"


def test_a_package_that_a_wheel_lacks_may_read_its_own_name() -> None:
    source = """
        import megatron.training.initialize, megatron.training.training
        def new(): ...
        megatron.training.initialize.set_jit_fusion_options = new
        megatron.training.training.set_jit_fusion_options = new
        """
    said, evidence = verdict(source, (0, 12))
    assert (said, evidence[:57]) == ("keep", "The wheel of megatron-core 0.12 lacks megatron.training. ")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        # Other packages import it from there.
        ("megatron.core.models.common.embeddings.rotary_pos_embedding", "apply_rotary_pos_emb"),
        ("megatron.core.transformer.utils", "toggle_cuda_graphs"),
        # Megatron reads it.
        ("megatron.core.optimizer.optimizer", "_zero_grad_group_helper"),
    ],
)
def test_a_public_name_or_one_that_is_read_stays(module: str, name: str) -> None:
    other = "from megatron.core import parallel_state\nparallel_state.create_group = new\n"
    assert verdict(f"def new(*args): ...\n{other}import {module} as module\nmodule.{name} = new\n")[0] != "delete"


READERS = {
    "an import": f"from {SPECS} import GroupedMLP",
    "an import of everything": f"from {SPECS} import *",
    "an attribute": f"import {SPECS}\nprint({SPECS}.GroupedMLP)",
    "an attribute of an alias": f"import {SPECS} as s\nprint(s.GroupedMLP)",
    "an attribute of something unknown": "def build(specs):\n    return specs.GroupedMLP()",
    "what another file hands on": "from patches import moe_module_specs\nprint(moe_module_specs.GroupedMLP)",
    "getattr": f"import {SPECS} as s\nprint(getattr(s, 'GroupedMLP'))",
    "getattr of a computed name": f"import {SPECS} as s\ndef get(name):\n    return getattr(s, name)",
    "hasattr": f"import {SPECS} as s\nprint(hasattr(s, 'GroupedMLP'))",
    "the names of a module": f"import {SPECS} as s\nprint(s.__dict__)",
    "a text and a module": f"import {SPECS} as s\nNAMES = ['GroupedMLP']\nREAD = [s]",
    "a path": f"PATH = '{SPECS}.GroupedMLP'",
    "a program": "run(['python', '-c', 'from megatron.core.models.gpt import moe_module_specs as m; m.GroupedMLP'])",
    "code that is run": f"exec('x = {SPECS} . GroupedMLP ( )')",
    "a text alone": "NAMES = ['GroupedMLP']",
    "an import over several lines": f"from {SPECS} import (\n    Other,\n    GroupedMLP,\n)",
    "the original": f"import {SPECS} as s\noriginal = s.GroupedMLP",
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_what_the_repository_reads_stays(reader: str) -> None:
    assert verdict({"patches.py": PATCH, "other.py": reader + "\n"})[0] != "delete"


NO_READERS = {
    "a sentence": "print('GroupedMLP is patched in moe_module_specs')",
    "a name of its own": "class GroupedMLP: ...\nGroupedMLP()",
    "everything of another module": f"from megatron.core.utils import *\nimport {SPECS} as s\nprint(s.Other)",
    "an attribute of self": "class A:\n    def f(self):\n        return self.GroupedMLP",
}


@pytest.mark.parametrize("other", NO_READERS.values(), ids=NO_READERS)
def test_what_names_it_and_does_not_read_it(other: str) -> None:
    assert verdict({"patches.py": PATCH, "other.py": other + "\n"})[0] == "delete"


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("conf/model.yaml", f"layer:\n  _target_: {SPECS}.GroupedMLP\n", "steps"),
        ("run.sh", f"python -c 'import {SPECS} as m; m.GroupedMLP'\n", "steps"),
        ("run.sh", "# GroupedMLP is slow\n", "delete"),
        ("README.md", f"`{SPECS}.GroupedMLP` is patched.\n", "delete"),
        ("fix.patch", "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+GroupedMLP()\n", "steps"),
    ],
)
def test_other_files(path: str, text: str, expected: str) -> None:
    assert verdict({"patches.py": PATCH, path: text.encode()})[0] == expected


def test_a_megatron_that_is_carried_along_is_no_release() -> None:
    carried = {
        "megatron/core/package_info.py": "",
        f"{SPECS.replace('.', '/')}.py": "def f():\n    return GroupedMLP\n",
    }
    assert verdict({"patches.py": PATCH, **carried})[0] != "delete"


def test_a_file_that_cannot_be_parsed_may_read_it(tmp_path: Path) -> None:
    write_files(tmp_path, {"patches.py": PATCH, "broken.py": b"def f(:\n    specs.GroupedMLP\n"})
    findings = unpatch("check", "--output-format", "json", cwd=tmp_path).json["findings"]
    assert "delete" not in [one["verdict"] for one in findings]


def test_a_line_that_sets_more_than_this_stays() -> None:
    source = """
        from megatron.core.models.gpt import moe_module_specs
        from megatron.core.transformer.moe import experts
        class Mine: ...
        experts.SequentialMLP = Mine
        for module in (moe_module_specs, experts):
            module.TEGroupedMLP = Mine
        """
    assert verdict(source)[0] == "steps"
    gone = source.replace("TEGroupedMLP", "GroupedMLP").replace(
        "(moe_module_specs, experts)", "(experts, moe_module_specs)"
    )
    assert verdict(gone)[0] != "delete"  # the first has it no longer; of the others less is known


def test_only_a_part_is_scanned_and_the_rest_reads_it(tmp_path: Path) -> None:
    write_files(tmp_path, {"a/patches.py": PATCH, "b/other.py": READERS["an import"], "pyproject.toml": b""})
    findings = unpatch("check", "a", "--output-format", "json", cwd=tmp_path).json["findings"]
    assert [one["verdict"] for one in findings] == ["steps", "steps"]


def test_migrate_deletes_it(tmp_path: Path) -> None:
    write_files(tmp_path, {"patches.py": PATCH, "requirements.txt": b"megatron-core==0.19.2\n"})
    Repository(tmp_path).commit()
    finding = unpatch("scan", "--output-format", "json", cwd=tmp_path).json["findings"][-1]
    assert finding["evidence"].endswith("; `unpatch migrate --unsafe-fixes` deletes it.")
    unpatch("migrate", "--unsafe-fixes", cwd=tmp_path)
    assert ".GroupedMLP" not in (tmp_path / "patches.py").read_text()


def test_what_is_gone_and_read_by_the_repository_is_kept_alive() -> None:
    patch = "from megatron.core import parallel_state\nparallel_state.is_inside_encoder = lambda: False\n"
    assert verdict(patch) == ("delete", "Megatron has no such name after 0.13.1: nothing calls it.")
    reader = "from megatron.core import parallel_state\nprint(parallel_state.is_inside_encoder())\n"
    added = "has no `is_inside_encoder` in `parallel_state`, only Megatron up to 0.13: the patch adds it"
    said = f"megatron-core 0.19 {added}, and this repository reads it. `unpatch pin` tells when Megatron has it."
    assert verdict({"patches.py": patch, "other.py": reader}) == ("keep", said)


@pytest.mark.parametrize(
    ("reader", "expected"),
    [
        ("class Mine:\n    def f(self):\n        return self._checkpointed_forward()", "keep"),
        ("def f(block):\n    return block._checkpointed_forward()", "keep"),
        ("class Mine:\n    def _checkpointed_forward(self): ...", "steps"),
        ("print('_checkpointed_forward')", "keep"),
    ],
)
def test_a_method_that_is_gone_may_be_called_by_the_repository(reader: str, expected: str) -> None:
    patch = """
        from megatron.core.transformer.transformer_block import TransformerBlock
        def new(self): ...
        TransformerBlock._checkpointed_forward = new
        """
    assert verdict({"patches.py": patch, "other.py": reader + "\n"})[0] == expected


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ("TransformerConfig.hidden_dropout = property(lambda self: 0.0)", "`hidden_dropout` is a field of"),
        ("TransformerConfig.__bases__ = (object,)", "It changes which classes `TransformerConfig` inherits from"),
        ("TransformerConfig.hidden_dropout_of_mine = lambda self: 0.0", ""),
    ],
)
def test_what_a_class_has_though_it_is_no_method_is_replaced(patch: str, said: str) -> None:
    head = "from megatron.core.transformer.transformer_config import TransformerConfig\n"
    told, why = verdict({"patches.py": f"{head}{patch}\n"})
    assert (told == "keep") is bool(said) and said in why
