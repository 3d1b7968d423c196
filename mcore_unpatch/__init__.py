"""Find, migrate and keep out monkey-patches of Megatron Core."""
