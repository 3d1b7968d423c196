"""When a patch runs: the tests, exits and calls around it, worked out for every release of Megatron Core."""
