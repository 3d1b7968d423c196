"""What is said of one file that uses Megatron, between two real releases."""

from mcore_unpatch.judge.statement import Statement
from mcore_unpatch.megatron import known
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.upgrade.uses import uses_for

HELPER = "from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper as Log\n"
CONFIG = "from megatron.core.transformer.transformer_config import TransformerConfig\n"
STATE = "from megatron.core import parallel_state as mpu\n"
KINDS = "from megatron.core.enums import ModelType\n"
SAVE = "from megatron.core.dist_checkpointing.serialization import save\n"
OWN = (
    CONFIG
    + """
from dataclasses import dataclass
@dataclass
class Between(TransformerConfig):
    extra: int = 1
"""
)
# old, new, the exception (none for what changes silently), words of the sentence, a file


def affected(text: str, old: str, new: str, path: str = "a.py") -> list[Statement]:
    """What the step does to a file, beside one that hands on names of Megatron."""
    files = {path: text.encode(), "names.py": (STATE + OWN).encode()}
    project = Project(files.__contains__, files.__getitem__)
    return uses_for([path, "names.py"], project, [(known.model(old), known.model(new))])[0].affected
