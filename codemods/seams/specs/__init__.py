"""Classes that specs name: where they are named, and a subclass in the place of a patched one."""
