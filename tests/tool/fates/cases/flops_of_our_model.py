"""Floating-point operations of a model that Megatron cannot count."""

from megatron.training import training


def num_floating_point_operations(args, batch_size):
    return 6 * args.seq_length * batch_size * args.hidden_size**2


training.num_floating_point_operations = num_floating_point_operations
