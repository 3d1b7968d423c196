"""What all releases together say of names: each question in all_releases.txt, with the answer as somebody read it."""

from pathlib import Path

from forms import check_forms

from mcore_unpatch.library.symbols import Symbol
from mcore_unpatch.megatron import known, packed

QUESTIONS = Path(__file__).parent / "all_releases.txt"
SHORT = {
    "GPT": "megatron.core.models.gpt.gpt_model.GPTModel",
    "LAYER": "megatron.core.transformer.transformer_layer.TransformerLayer",
    "BLOCK": "megatron.core.transformer.transformer_block.TransformerBlock",
    "CONFIG": "megatron.core.transformer.transformer_config.TransformerConfig",
    "STATE": "megatron.core.parallel_state",
    "CORE": "megatron.core",
}


def test_every_question_is_answered_as_somebody_read() -> None:
    check_forms(QUESTIONS, lambda questions: map(answer, questions))


def answer(question: str) -> str:
    """What the library says of some words."""
    function, *words = question.split()
    given = [".".join(SHORT.get(part, part) for part in word.split(".")) for word in words]
    said = getattr(known if function == "unique_method_owner" else packed.library(), function)(*given)
    text = f"{said.kind} {said.name}" if isinstance(said, Symbol) else repr(said)
    return f" {text}".replace("megatron.core.", "CORE.")
