"""The flag as a keyword of the call itself."""

from mcore_unpatch.compat.nemo_rl import linear_ce_fusion_kwargs


class Worker:
    def log_probs(self, ids, fused):
        always = self.model(ids, labels=ids, **linear_ce_fusion_kwargs(self.model, numbers="nemo_rl"))
        if_asked = self.model(
            ids,
            labels=ids,
            **(linear_ce_fusion_kwargs(self.model, numbers="nemo_rl") if fused else {}),
            loss_mask=None,
        )
        return always, if_asked
