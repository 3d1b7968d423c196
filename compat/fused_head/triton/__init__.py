"""The GPU backend: two kernels that make logits and use them up in registers, and plain products for the gradients.

The arguments of a kernel stand in groups (matrices, sizes, what is known of each row, constants): hence `fmt: skip`.
"""
