"""The flag as a keyword of the call itself."""


class Worker:
    def log_probs(self, ids, fused):
        always = self.model(ids, labels=ids, return_logprobs_for_linear_ce_fusion=True)
        if_asked = self.model(
            ids,
            labels=ids,
            return_logprobs_for_linear_ce_fusion=fused,
            loss_mask=None,
        )
        return always, if_asked
