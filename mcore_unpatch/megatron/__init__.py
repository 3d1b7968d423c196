"""What is known of Megatron Core, release by release, without Megatron Core installed."""
