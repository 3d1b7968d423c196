"""Ask the provider for its experts by position, as it took them once."""

from megatron.core.models.backends import LocalSpecProvider

_grouped = LocalSpecProvider.grouped_mlp_modules


class Experts:
    def choose(self, provider, grouped):
        return _grouped(provider, grouped, False)


def grouped_mlp_modules(self, moe_use_grouped_gemm, *_, **__):
    return Experts().choose(self, moe_use_grouped_gemm)


LocalSpecProvider.grouped_mlp_modules = grouped_mlp_modules
