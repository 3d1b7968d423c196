"""veRL's patches of Megatron Core under the same names: change the import and keep training.

Nothing is imported here: a module that needs the hook asks for it itself.
"""
