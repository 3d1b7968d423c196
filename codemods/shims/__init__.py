"""From a downstream's own patch files to the shims of the same names: what both veRL and NeMo RL need."""
