# golden: unsafe
from megatron.core import parallel_state


def add_branch(model, scale):
    assert parallel_state.get_tensor_model_parallel_world_size() == 1
    for name, module in model.named_modules():
        if not name.endswith("linear_proj"):
            continue
        forward_before = module.forward

        def branch(inputs, *args, _before=forward_before, _weight=module.weight, **kwargs):
            output, bias = _before(inputs, *args, **kwargs)
            return output + scale * (inputs @ _weight.T).relu(), bias

        module.forward = branch
