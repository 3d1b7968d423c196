"""Who can call what is patched: whose object it is, and what is replaced beside it."""

import pytest
from checking import found_in


@pytest.mark.parametrize(("base", "told"), [("MultiLatentAttention", True), ("Own", False)])
def test_what_a_base_class_of_megatron_calls_is_called_of_its_heirs_alone(base: str, told: bool) -> None:
    source = f"""
        from megatron.core.transformer import multi_latent_attention
        from megatron.core.transformer.multi_latent_attention import MultiLatentAttention
        class Own:
            def forward(self, hidden_states, *args, **kwargs): return self.get_query_key_value_tensors(hidden_states)
        class Mine({base}):
            def get_query_key_value_tensors(self, hidden_states): ...
        multi_latent_attention.MLASelfAttention = Mine
        """
    [finding] = found_in(source, target=(0, 15))
    assert ("`Mine.get_query_key_value_tensors` does not take: TypeError" in finding.message) is told
