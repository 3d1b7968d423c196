"""Expert data parallel groups of our own making."""

from megatron.core import parallel_state

_upstream_group = parallel_state.get_expert_data_parallel_group


def get_expert_data_parallel_group(check_initialized=True, partial_expert_data_parallel=False):
    return _upstream_group(
        check_initialized=check_initialized, partial_expert_data_parallel=partial_expert_data_parallel
    )


parallel_state.get_expert_data_parallel_group = get_expert_data_parallel_group
