# golden: unsafe
from megatron.core import parallel_state


def record(node, seen):
    original = node.forward

    def wrapped(*args, **kwargs):
        out = original(*args, **kwargs)
        seen.append(parallel_state.get_tensor_model_parallel_rank())
        return out

    node.forward = wrapped
