"""What the repository itself puts on Megatron's objects, classes and modules is there, whatever the release has."""

import pytest
from checking import found_in

from mcore_unpatch.megatron.versions import parse_version

ROUTER = "from megatron.core.transformer.moe.router import TopKRouter\n"
READ = "def new(self, logits):\n    return self.is_aux_loss_enabled()\nTopKRouter.routing = new\n"
QUEUE = """
from megatron.core.dist_checkpointing.strategies import base
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncCallsQueue
"""
# A file, the release, and whether a line of it raises there.
FILES = {
    "nobody sets it": (ROUTER + READ, "0.13.1", True),
    "set where it is not there": (ROUTER + """
import types
def new(self, logits):
    if not hasattr(self, "is_aux_loss_enabled"):
        self.is_aux_loss_enabled = types.MethodType(lambda self: False, self)
    return self.is_aux_loss_enabled()
TopKRouter.routing = new
""", "0.13.1", False),
    "set only where it is there": (ROUTER + """
def new(self, logits):
    if hasattr(TopKRouter, "is_aux_loss_enabled"):
        self.is_aux_loss_enabled = bool
    return self.is_aux_loss_enabled()
TopKRouter.routing = new
""", "0.13.1", True),
    "set by another replacement": (ROUTER + READ + """
def install(original=TopKRouter.__init__):
    def init(self, *args, **kwargs):
        original(self, *args, **kwargs)
        self.is_aux_loss_enabled = bool
    TopKRouter.__init__ = init
install()
""", "0.13.1", False),
    "set on the class by another patch": (ROUTER + READ + """
TopKRouter.is_aux_loss_enabled = lambda self: False
""", "0.13.1", False),
    "set by a class of one's own": (ROUTER + READ + """
class Mine:
    def __init__(self):
        self.is_aux_loss_enabled = bool
""", "0.13.1", True),
    "set too late": (ROUTER + """
def new(self, logits):
    enabled = self.is_aux_loss_enabled()
    self.is_aux_loss_enabled = bool
    return enabled
TopKRouter.routing = new
""", "0.13.1", True),
    "set from itself": (ROUTER + READ + """
def init(self):
    self.is_aux_loss_enabled = self.is_aux_loss_enabled or bool
TopKRouter.__init__ = init
""", "0.13.1", True),
    "kept before it is replaced": (ROUTER + """
def install():
    original = TopKRouter.is_aux_loss_enabled
    TopKRouter.is_aux_loss_enabled = lambda self: original(self)
def remove(original):
    TopKRouter.is_aux_loss_enabled = original
install()
""", "0.13.1", True),
    "set in a module by another method": (QUEUE + """
class Saver:
    def __init__(self):
        base.async_calls = AsyncCallsQueue(persistent=True)
    def close(self):
        base.async_calls.close()
        base.async_calls = AsyncCallsQueue(persistent=True)
""", "0.18.2", False),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_only_what_nobody_puts_there_is_missing(name: str) -> None:
    source, release, raises = FILES[name]
    findings = found_in(source, target=parse_version(release))
    assert findings
    assert any("AttributeError" in finding.message for finding in findings) is raises
