"""Megatron's `output_processor` hook: a typed view of its call, a library of processors, and ways to install one."""
