"""Keep the MoE losses of each layer for our own plots."""

from megatron.core.transformer.moe import router

kept = {}
_save = router.save_to_aux_losses_tracker


def save_to_aux_losses_tracker(name, loss, layer_number, *args, **kwargs):
    kept.setdefault(name, {})[layer_number] = loss.detach()
    return _save(name, loss, layer_number, *args, **kwargs)


router.save_to_aux_losses_tracker = save_to_aux_losses_tracker
