"""Whatever a file holds, the scanner answers; and what does not change the program does not change the findings."""

import tempfile
from pathlib import Path

import pytest
from checking import found_in
from hypothesis import HealthCheck, given, settings, strategies as st

from mcore_unpatch.findings.finding import Report
from mcore_unpatch.findings.rules import Selection
from mcore_unpatch.survey.scan import scan
from mcore_unpatch.survey.survey import ScanOptions

# Every kind of statement the scanner looks for; none spans lines, so that lines can be put between any two.
LINES = [
    "import sys, types, inspect, importlib",
    "from unittest import mock",
    "import megatron.core as mc",
    "from megatron.core import utils, parallel_state as mpu",
    "from megatron.core.models.gpt import GPTModel",
    "class Mine(GPTModel): pass",
    "original = GPTModel.forward",
    "def fast(self, ids): return log_probs(ids)",
    "GPTModel.forward = fast",
    "GPTModel._patched = True",
    "utils.get_model_config = lambda model: None",
    "model = Mine(None)",
    "model._postprocess = types.MethodType(fast, model)",
    "model.output_layer.forward = fast.__get__(model.output_layer)",
    "model.output_layer = ValueHead(8)",
    "setattr(mc.transformer.mlp.MLP, 'forward', fast)",
    "type(model).state_dict = fast",
    "for layer in model.mtp.layers: layer._get_embeddings = fast",
    "sys.modules['megatron.core.fusions.fused_softmax'] = types.ModuleType('x')",
    "utils.__dict__['get_model_type'] = fast",
    "register_patch('megatron.core.transformer.mlp.MLP.__init__', fast)",
    "exec(inspect.getsource(mpu.initialize_model_parallel).replace('a', 'b'))",
    "mock.patch('megatron.core.utils.get_attr_wrapped_model')",
    "model.build_schedule_plan(1, 2, 3).post_process.forward_impl = fast",
    "GPTModel.forward = original",
]
Facts = list[tuple[str, str, str, str]]
EVERYTHING = Selection.parse(["ALL"], [])
PROFILE = settings(
    deadline=None,
    max_examples=80,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def one_per_line(*choices: str) -> st.SearchStrategy[list[str]]:
    """A choice for each of the lines."""
    return st.lists(st.sampled_from(choices), min_size=len(LINES), max_size=len(LINES))


def scan_bytes(data: bytes, name: str = "module.py") -> Report:
    """Scan one file as it is; an exception would end the test."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, name).write_bytes(data)
        return scan([Path(folder, name)], ScanOptions(selection=EVERYTHING, jobs=1))


def facts(lines: list[str]) -> Facts:
    """What is found, without its place."""
    found = found_in("\n".join(lines) + "\n", selection=EVERYTHING)
    return sorted((f.rule, f.target, f.shape, f.confidence) for f in found)


@pytest.fixture(scope="module")
def expected() -> Facts:
    """The findings of the lines as they stand."""
    found = facts(LINES)
    assert len(found) == 14
    assert {shape for _, _, shape, _ in found} >= {
        "class-attr",
        "module-attr",
        "instance-attr",
        "setattr",
        "class-of-instance",
        "submodule",
        "sys-modules",
        "string-target",
        "source-rewrite",
        "mock",
    }
    return found


@PROFILE
@given(st.binary(max_size=400))
def test_arbitrary_bytes(data: bytes) -> None:
    scan_bytes(data)
    scan_bytes(b"import megatron.core\nmegatron.core.forward = x\n" + data)
    scan_bytes(b"+++ b/megatron/core/utils.py\n" + data, "module.patch")


@PROFILE
@given(st.data())
def test_arbitrary_mutations_of_a_file_full_of_patches(data: st.DataObject) -> None:
    text = "\n".join(LINES).encode()
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 30)))
        text = text[:start] + data.draw(st.binary(max_size=12)) + text[end:]
    scan_bytes(text)


@PROFILE
@given(st.lists(st.sampled_from(LINES), max_size=30))
def test_any_order_of_lines(lines: list[str]) -> None:
    scan_bytes("\n".join(lines).encode())


@pytest.mark.slow
@settings(PROFILE, max_examples=30)  # of 25 choices each
@given(one_per_line("", "   ", "# a comment: GPTModel.forward = x", "\t# unpatched", "\f"))
def test_lines_in_between_change_nothing(expected: Facts, between: list[str]) -> None:
    assert facts([line for pair in zip(between, LINES, strict=True) for line in pair]) == expected


@pytest.mark.slow
@settings(PROFILE, max_examples=30)  # of 25 choices each
@given(one_per_line("", " ", "  # comment", " # GPTModel.forward = other", "\t"))
def test_line_ends_change_nothing(expected: Facts, ends: list[str]) -> None:
    assert facts([line + end for line, end in zip(LINES, ends, strict=True)]) == expected


@settings(PROFILE, max_examples=40)
@given(st.integers(1, 3), st.sampled_from([" ", "    ", "\t"]))
def test_indentation_changes_nothing(expected: Facts, depth: int, step: str) -> None:
    heads = [step * level + "if True:" for level in range(depth)]
    assert facts([*heads, *(step * depth + line for line in LINES)]) == expected


@settings(PROFILE, max_examples=40)
@given(st.sampled_from(["\n", "\r\n", "\r"]), st.sampled_from(["utf-8", "utf-8-sig", "latin-1", "cp1252"]))
def test_encodings_and_line_ends_change_nothing(expected: Facts, newline: str, encoding: str) -> None:
    cookie = [] if encoding.startswith("utf-8") else [f"# -*- coding: {encoding} -*-"]
    data = newline.join([*cookie, "# é", *LINES, ""]).encode(encoding)
    found = sorted((f.rule, f.target, f.shape, f.confidence) for f in scan_bytes(data).findings)
    assert found == expected
