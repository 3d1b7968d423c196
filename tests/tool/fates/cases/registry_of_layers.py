"""Classes of Megatron that ours take the place of."""

from importlib import import_module

from megatron.core.transformer.moe.moe_layer import MoELayer


class CountingMoELayer(MoELayer):
    """Counts the tokens that it saw."""

    def __init__(self, config, submodules=None, layer_number=None, pg_collection=None, is_mtp_layer=False):
        super().__init__(config, submodules, layer_number, pg_collection)
        self.tokens_seen = 0


class Patcher:
    """Collects pairs of dotted names and applies them."""

    def __init__(self):
        self.pairs = []

    def add_patch(self, target, replacement):
        self.pairs.append((target, replacement))

    def apply(self):
        for target, replacement in self.pairs:
            owner, name = target.rsplit(".", 1)
            source, own = replacement.rsplit(".", 1)
            setattr(import_module(owner), name, getattr(import_module(source), own))


def install():
    patcher = Patcher()
    patcher.add_patch("megatron.core.models.gpt.moe_module_specs.MoELayer", "registry_of_layers.CountingMoELayer")
    patcher.apply()
