"""Rewrites of downstream code, from patches of Megatron Core to the shims and seams that replace them."""
