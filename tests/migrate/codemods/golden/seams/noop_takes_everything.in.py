# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel

original = GPTModel._postprocess


def _postprocess(self, hidden_states, *args, output_processor=None, **kwargs):
    if output_processor is not None:
        return original(self, hidden_states, *args, output_processor=output_processor, **kwargs)
    mtp_entropy = self.mtp(hidden_states)
    return mtp_entropy


GPTModel._postprocess = _postprocess
