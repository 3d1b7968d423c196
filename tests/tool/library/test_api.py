"""What all releases together say of Megatron's names: each question in api.txt, with the answer as somebody read it."""

from pathlib import Path

from forms import check_forms

from mcore_unpatch.megatron import api

QUESTIONS = Path(__file__).parent / "api.txt"
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
    """What a function of the module says of its words."""
    function, *words = question.split()
    given = [".".join(SHORT.get(part, part) for part in word.split(".")) for word in words]
    said = getattr(api, function)(*given)
    if isinstance(said, frozenset):
        return f" {len(said) > 1000}"
    return f" {said!r}".replace("megatron.core.", "CORE.")
