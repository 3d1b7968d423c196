"""Find patches of Megatron Core with the standard `ast`: sources, names, shapes, and what each patch can become."""
