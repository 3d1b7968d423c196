"""Old code under guards as people write them: five forms of the guard, and two more."""

from __future__ import annotations

LEGACY = """
from megatron.core.models.gpt.gpt_model import GPTModel


def _postprocess(self, hidden_states, input_ids, position_ids, labels, *rest, **more):
    return self.output_layer(hidden_states)


def patch_postprocess(model):
    model._postprocess = _postprocess.__get__(model, GPTModel)
"""
_TWO = """
    {test}:
        from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess
    {otherwise}:
        # on older ones: the copy
        from verl.models.mcore.mtp_patch import patch_postprocess  # noqa: F811
"""
_ASKS = '"output_processor" in inspect.signature(GPTModel.forward).parameters'
_HEAD = """import inspect

import megatron.core
from megatron.core.models.gpt.gpt_model import GPTModel
from packaging.version import Version
"""
_USE = "\n\ndef prepare(model):{import_}\n    patch_postprocess(model)\n"
_HELPER = f"\n\ndef has_hook():\n    return {_ASKS}\n"
_FLAG = """
try:
    import mcore_unpatch.compat.verl.mtp_patch

    ON_HOOK = True
except ImportError:
    ON_HOOK = False
"""
_EARLY = f"""
    if {_ASKS}:
        from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess

        return patch_postprocess(model)
    # on older ones: the copy
    from verl.models.mcore.mtp_patch import patch_postprocess  # noqa: F811
"""


def _both(test: str, otherwise: str = "else", head: str = "") -> str:
    return _HEAD + head + _USE.format(import_=_TWO.format(test=test, otherwise=otherwise).rstrip())


FORMS = {
    "import": _both("try", "except ImportError"),
    "version": _both('if Version(megatron.core.__version__) >= Version("0.18.0")'),
    "text": _both('if megatron.core.__version__ >= "0.18"'),
    "signature": _both(f"if {_ASKS}"),
    "helper": _both("if has_hook()", head=_HELPER),
    "flag": _both("if ON_HOOK", head=_FLAG),
    "early": _HEAD + _USE.format(import_=_EARLY.rstrip()),
}
