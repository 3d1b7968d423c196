"""A repository with something for every part of a report."""

FILES: dict[str, str | bytes] = {
    "pkg/patches.py": """\
        from megatron.core.models.gpt import GPTModel
        original = GPTModel.forward
        def fast(self, ids: dict[str, int], labels=None):
            return log_probs(ids)
        def patch(model: GPTModel):
            GPTModel.forward = fast
            GPTModel._patched = True
            model.decoder.forward = lambda hidden: hidden[0]["[bold]"]
        def unpatch():
            GPTModel.forward = original
    """,
    "naïve file.py": "from megatron.core import utils\nutils.get_model_config = {'a: b, c%': print}['a: b, c%']\n",
    "unused.py": "x = 1  # unpatch: ignore\n",
    "broken.py": b"from megatron.core.models.gpt import GPTModel\nGPTModel.forward = (\n",
}
