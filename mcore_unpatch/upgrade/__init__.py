"""What another release of Megatron Core does to the patches of a repository."""
