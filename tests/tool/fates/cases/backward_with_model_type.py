"""Time each backward step."""

import time

from megatron.core.pipeline_parallel import schedules

seconds = []
_backward_step = schedules.backward_step


def backward_step(input_tensor, output_tensor, output_tensor_grad, model_type, config):
    start = time.monotonic()
    grad = _backward_step(input_tensor, output_tensor, output_tensor_grad, model_type, config)
    seconds.append(time.monotonic() - start)
    return grad


schedules.backward_step = backward_step
