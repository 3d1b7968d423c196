"""Megatron's source changed while it is imported, or by a table of texts for its files."""

import pytest
from checking import check_noop, found_in

MODULE = "megatron.core.models.gpt.gpt_model"
FINDER = """
import importlib.abc, sys
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "megatron.core.models.gpt.gpt_model":
            return other_spec(name, path)
"""


@pytest.mark.parametrize(
    "source",
    [
        FINDER + "sys.meta_path.insert(0, Finder())",
        FINDER + "sys.meta_path.append(Finder())",
        FINDER.replace("import importlib.abc, sys", "import importlib.abc\nfrom sys import meta_path")
        + "meta_path.insert(0, Finder())",
        FINDER.replace('"megatron.core.models.gpt.gpt_model"', '"site/megatron/core/models/gpt/gpt_model.py"')
        + "sys.path_hooks.insert(0, Finder)",
        'RULES = {"megatron/core/models/gpt/gpt_model.py": ["""\n-    return True\n+    return False\n"""]}',
        'RULES = {\n    "megatron/core/models/gpt/gpt_model.py" : "-    a\\n+    b",\n}',
    ],
)
def test_source_of_megatron_that_is_changed_before_it_runs(source: str) -> None:
    (finding,) = found_in(source)
    assert (finding.rule, finding.target, finding.confidence) == ("MCU607", MODULE, "likely")
    assert finding.message.startswith("replaces" if "RULES" in source else "may replace")
    assert finding.evidence.startswith("It may replace a whole module")


@pytest.mark.parametrize(
    "source",
    [
        FINDER.replace("megatron.core.models.gpt.gpt_model", "transformer_engine") + "sys.meta_path.append(Finder())",
        FINDER + "sys.meta_path.remove(Finder())",
        FINDER + "finders.append(Finder())",
        FINDER.replace(".gpt_model", ".nowhere") + "sys.meta_path.append(Finder())",
        'OWNERS = {"megatron/core/models/gpt/gpt_model.py": "team"}',
        'RULES = {"megatron/core/nowhere.py": "-    a\\n+    b"}',
        'RULES = {"megatron/core/models/gpt/gpt_model.yaml": "-    a\\n+    b"}',
    ],
)
def test_other_finders_and_tables(source: str) -> None:
    check_noop(source)
