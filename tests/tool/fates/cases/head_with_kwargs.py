"""A head that takes what it needs and nothing else."""

from megatron.core.models.gpt.gpt_model import GPTModel


def _postprocess(self, hidden_states, labels, runtime_gather_output=None, **unused):
    logits, _ = self.output_layer(hidden_states, runtime_gather_output=runtime_gather_output)
    return self.compute_language_model_loss(labels, logits.float())


GPTModel._postprocess = _postprocess
