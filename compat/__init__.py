"""Replacements for downstream patches of Megatron Core, built on its official `output_processor` hook."""
