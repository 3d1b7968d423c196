"""The last column of `upgrade`, and what `migrate` says of a rewrite that a HybridModel is no better for."""

from pathlib import Path

from command import unpatch
from repository import Repository

FILES = {
    "requirements.txt": "megatron-core==0.18.2\n",
    "recompute.py": """\
        from megatron.core.models.gpt.gpt_model import GPTModel
        from megatron.core.transformer.transformer_block import TransformerBlock
        from megatron.core.transformer.mlp import MLP

        def build(config, spec):
            return GPTModel(config, spec, 8, 8)

        def add_adapter(block, adapter):
            if not isinstance(block, TransformerBlock):
                return
            original = block.forward

            def adapted(hidden_states, *args, **kwargs):
                out = original(hidden_states, *args, **kwargs)
                return out + adapter(hidden_states)

            block.forward = adapted

        def identity(self, hidden_states, *args, **kwargs):
            return hidden_states, None

        MLP.forward = identity
    """,
}


def test_text_and_json(tmp_path: Path) -> None:
    Repository(tmp_path).commit(FILES)
    text = unpatch("upgrade", "--to", "0.19.2", "--all", cwd=tmp_path).out.splitlines()
    head = next(line for line in text if line.startswith("patch "))
    assert head.split() == ["patch", "0.18.2", "0.19.2", "Hybrid"]
    assert any("TransformerBlock.forward" in line and "dead" in line.split() for line in text)
    assert any("MLP.forward" in line and "acts" in line.split() for line in text)
    said = " ".join(text)
    assert "dead 1, acts 1. GPTModel is built, derived from or handed on at 1 place." in " ".join(said.split())
    assert "does nothing: line 9 asks for `TransformerBlock`" in " ".join(said.split())
    data = unpatch("upgrade", "--to", "0.19.2", "--output-format", "json", cwd=tmp_path).json
    rows = {row["target"].rpartition(".")[0].rpartition(".")[2]: row["hybrid"] for row in data["patches"]}
    assert rows["MLP"]["becomes"] == "acts"
    assert (rows["TransformerBlock"]["becomes"], rows["TransformerBlock"]["why"]) == ("dead", "asked")
    assert data["builders"] == 1


def test_a_megatron_without_it_has_no_column(tmp_path: Path) -> None:
    Repository(tmp_path).commit(FILES | {"requirements.txt": "megatron-core==0.16.1\n"})
    result = unpatch("upgrade", "--to", "0.17.1", "--all", cwd=tmp_path)
    assert "Hybrid" not in result.out
    assert "TransformerBlock.forward" in result.out


def test_a_rewrite_that_keeps_the_hole_says_so(tmp_path: Path) -> None:
    Repository(tmp_path).commit(FILES)
    result = unpatch("migrate", "--diff", "--unsafe-fixes", cwd=tmp_path)
    assert "block.register_forward_hook(adapted, with_kwargs=True)" in result.out
    said = " ".join(f"{result.out} {result.err}".split())
    assert "when the model is a HybridModel, the rewrite as the patch does nothing: line 9 asks" in said
