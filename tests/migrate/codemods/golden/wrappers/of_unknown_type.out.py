# golden: unsafe
from megatron.core import parallel_state


def add_branch(model, scale):
    assert parallel_state.get_tensor_model_parallel_world_size() == 1
    for name, module in model.named_modules():
        if not name.endswith("linear_proj"):
            continue

        def branch(_module, args, kwargs, outputs, *, _weight=module.weight):
            inputs = args[0] if args else kwargs["inputs"]
            output, bias = outputs
            return output + scale * (inputs @ _weight.T).relu(), bias

        module.register_forward_hook(branch, with_kwargs=True)
