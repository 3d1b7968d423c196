"""The shapes a patch can have, one file each: what a statement changes of Megatron Core, and with what."""
