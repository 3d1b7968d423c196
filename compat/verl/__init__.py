"""veRL's patches of Megatron Core under the same names: change the import and keep training."""
