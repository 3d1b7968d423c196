"""The GPU backend: two kernels that make logits and use them up in registers, and plain products for the gradients."""
