"""Copies of `GPTModel.forward` and `_postprocess`: what follows the decoder in them becomes a processor of the hook."""
