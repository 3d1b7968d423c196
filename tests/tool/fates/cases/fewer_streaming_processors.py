"""Leave half of the processors that DeepEP may use to the experts."""

from megatron.core.transformer.transformer_config import TransformerConfig

_post_init = TransformerConfig.__post_init__


def halve(self):
    _post_init(self)
    self.moe_deepep_num_sms = self.moe_deepep_num_sms // 2


TransformerConfig.__post_init__ = halve
