"""Keep the probabilities of routing in float64 until the tokens are sent."""

from megatron.core.transformer.moe.moe_layer import MoELayer


def router_and_preprocess(self, hidden_states):
    residual = hidden_states
    probs, routing_map = self.router(hidden_states)
    hidden_states, probs = self.token_dispatcher.dispatch_preprocess(hidden_states, routing_map, probs * 2)
    return hidden_states, probs, residual


MoELayer.router_and_preprocess = router_and_preprocess
