"""Parts of the specs that Megatron makes: since 0.18 `mlp` is something that builds a module, and no ModuleSpec."""

import pytest
from checking import releases

from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.upgrade.uses import uses_of

HEAD = """
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_layer_local_spec
from megatron.core.transformer.spec_utils import ModuleSpec
from ours import make_spec
"""
MAKES_ONE = "def made():\n    return Submodules(mlp=ModuleSpec(module=Ours))\n"
READ, SET, TEST = "without `{}`", "nobody reads what is set here", "the test is false"

TOLD = {
    "spec.submodules.mlp.module": (2, "raises", READ.format("module")),
    "spec.submodules.mlp.submodules.linear_fc1 = Ours": (2, "raises", READ.format("submodules")),
    "spec.layer_specs[0].submodules.mlp.submodules.shared_experts.params['gate'] = True": (
        2,
        "raises",
        READ.format("submodules") + "; the same is true of `shared_experts`",
    ),
    "spec.submodules.mlp.module = Ours": (2, "changes", SET),
    "mlp = spec.submodules.mlp\n    return mlp.params": (3, "raises", READ.format("params")),
    "if isinstance(spec.submodules.mlp, ModuleSpec):\n        return spec.submodules.mlp.module": (2, "changes", TEST),
    "assert isinstance(spec.submodules.mlp, ModuleSpec)\n    return spec.submodules.mlp.module": (2, "raises", TEST),
    "assert spec and isinstance(spec.submodules.mlp, ModuleSpec)\n    spec.submodules.mlp.module": (2, "raises", TEST),
    "assert 1 or isinstance(spec.submodules.mlp, ModuleSpec)\n    spec.submodules.mlp.module": (2, "changes", TEST),
    "spec.submodules.mlp.params += 1": (2, "raises", READ.format("params")),
}
NOT_TOLD = [
    "spec.submodules.self_attention.module = Ours",  # is one still
    "spec.submodules.mlp = Ours",
    "spec.mlp.module",  # of some other object
    "isinstance(spec.submodules.input_layernorm, ModuleSpec)",  # was a class all along
    "if isinstance(spec.submodules.mlp, ModuleSpec):\n        a = spec.submodules.mlp.module\n    else:\n        a = 1",
    "if hasattr(spec.submodules.mlp, 'module'):\n        return spec.submodules.mlp.module",
    "try:\n        return spec.submodules.mlp.module\n    except AttributeError:\n        return None",
    "try:\n        assert isinstance(spec.submodules.mlp, ModuleSpec)\n    except AssertionError: pass",
    "if mcore_version >= Version('0.18'):\n        return\n    return spec.submodules.mlp.module",
]


def said(code: str, older: str = "0.16.0", newer: str = "0.19.2", **others: str) -> list[tuple[int, str, str]]:
    """The line in its function, the kind and the sentence of what is told of one function."""
    files = {"code.py": HEAD + code} | {f"{name}.py": text for name, text in others.items()}
    data = {name: text.encode() for name, text in files.items()}
    first = HEAD.count("\n")
    told = uses_of(list(data), Project(data.__contains__, data.__getitem__), *releases(older, newer)).affected
    return [(one.line - first, one.kind, one.text) for one in told]


@pytest.mark.parametrize("code", TOLD)
def test_what_opens_a_spec_that_is_none_any_more_is_told(code: str) -> None:
    line, kind, words = TOLD[code]
    [(at, told, text)] = [one for one in said(f"def case(spec):\n    {code}\n") if one[0] == line]
    assert (at, told) == (line, kind)
    assert text.endswith(words) and text.startswith("`mlp` of the specs that Megatron makes is no ModuleSpec")


@pytest.mark.parametrize("code", NOT_TOLD)
def test_nothing_is_told_of_other_code(code: str) -> None:
    version = "from packaging.version import Version\nimport megatron.core\n"
    version += "mcore_version = Version(megatron.core.__version__)\n"
    assert said(f"{version}def case(spec):\n    {code}\n") == []


@pytest.mark.parametrize(
    ("annotation", "told"),
    [("OurSubmodules", 0), ("TransformerLayerSubmodules", 1), ("'OurSubmodules | None'", 1)],
)
def test_submodules_of_its_own_are_no_specs_of_megatron(annotation: str, told: int) -> None:
    names = "from megatron.core.transformer.transformer_layer import TransformerLayerSubmodules\n"
    code = f"def case(submodules: {annotation}):\n    return submodules.mlp.module\n"
    assert len(said(f"{names}class OurSubmodules: ...\n{code}")) == told


@pytest.mark.parametrize(
    ("maker", "kind"), [("make_spec()", "changes"), ("get_gpt_layer_local_spec()", "raises"), ("argument", "changes")]
)
def test_where_the_repository_makes_such_specs_itself_only_what_megatron_made_is_sure_to_raise(
    maker: str, kind: str
) -> None:
    code = f"def case(argument):\n    spec = {maker}\n    return spec.submodules.mlp.module\n"
    [(_, told, text)] = said(code, ours=HEAD + MAKES_ONE)
    assert told == kind
    assert text.endswith("; a spec of your own is what you make it") is (kind == "changes")


ASKED = "isinstance(spec.submodules.mlp, ModuleSpec)"


def test_where_the_repository_makes_such_specs_a_test_is_false_of_megatrons_alone() -> None:
    code = f"def case(spec):\n    assert {ASKED}\n    return spec.submodules.mlp.module\n"
    (_, kind, text), _ = said(code, ours=HEAD + MAKES_ONE)
    assert kind == "changes"
    assert text.endswith(": the test is false of those; a spec of your own is what you make it")


@pytest.mark.parametrize(
    ("code", "kinds"),
    [
        (f"if not {ASKED}:\n        return\n    spec.submodules.mlp.module", ["changes"]),
        (f"if not {ASKED}: return\n    spec.submodules.mlp.module", ["changes"]),
        (f"for spec in a:\n      if not {ASKED}:\n        continue\n      spec.submodules.mlp.module", ["changes"]),
        (f"if (\n        {ASKED}\n        and spec.submodules.mlp.module\n    ):\n        pass", ["changes"]),
        (f"if a:\n        if not {ASKED}:\n            return\n    spec.submodules.mlp.module", ["changes", "raises"]),
        (f"if not {ASKED}:\n        print()\n    spec.submodules.mlp.module", ["changes", "raises"]),
    ],
)  # fmt: skip
def test_behind_a_test_that_leaves_it_is_one(code: str, kinds: list[str]) -> None:
    assert sorted(kind for _, kind, _ in said(f"def case(spec, a):\n    {code}\n")) == kinds
