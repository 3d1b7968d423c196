"""veRL: every use of its three patch files moves to the shims of the same names."""
