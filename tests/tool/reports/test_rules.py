"""`unpatch rules` lists every rule; `unpatch explain` shows what, why, before and after, versions and a link."""

import ast
from pathlib import Path

import pytest
from checking import found_in
from command import CLEAN, unpatch

from mcore_unpatch.findings.rules import families, rules

PYTHON = [code for code in rules() if code != "MCU608" and not code.startswith("MCU8")]  # patch files and locks


def test_list(tmp_path: Path) -> None:
    result = unpatch("rules", cwd=tmp_path)
    assert result.code == CLEAN
    for code, rule in rules().items():
        assert f" {code} {rule.name}: " in " ".join(result.out.split())
    for prefix in families():
        assert any(code.startswith(prefix) for code in rules())


@pytest.mark.parametrize("code", rules())
def test_explain(code: str, tmp_path: Path) -> None:
    rule = rules()[code]
    by_code, by_name = unpatch("explain", code, cwd=tmp_path), unpatch("explain", rule.name, cwd=tmp_path)
    assert by_code == by_name or code == "MCU750"  # its name is that of its edit, too
    assert by_code.code == CLEAN
    prose = " ".join(by_code.out.split())
    for part in (code, rule.name, rule.why, "Before:", "After:", rule.versions, rule.link):
        assert " ".join(part.split()) in prose
    assert rule.before in by_code.out
    assert rule.after in by_code.out
    assert unpatch("explain", code.lower(), cwd=tmp_path) == by_code


@pytest.mark.parametrize("code", PYTHON)
def test_before_and_after_are_python(code: str) -> None:
    rule = rules()[code]
    ast.parse(rule.before)
    ast.parse(rule.after)
    assert bool(rule.before) == bool(rule.after)  # where the code is to stay, it is shown as it is


NAMES = """
import inspect, sys, types
import megatron.core.utils
from megatron.core.models.gpt import GPTModel, gpt_layer_specs
from megatron.core.transformer import multi_token_prediction
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.timers import Timers
from megatron.core.transformer.transformer_block import TransformerBlock
original = megatron.core.utils.get_model_config
def fused_forward(self, *args): return log_probs(args)
def postprocess_with_log_probs(self, *args): return log_probs(args)
def postprocess_with_mtp_loss(self, *args): return mtp_loss(args)
def passthrough(self, hidden): return hidden
def install(model: GPTModel, timers: Timers, old, new):
    layer = model.mtp.layers[0]
"""
CODES = [code for code in PYTHON if code not in {"MCU901", "MCU902", "MCU603"} and not code.startswith("MCU75")]


@pytest.mark.parametrize("code", CODES)
def test_before_is_found_under_its_own_rule(code: str) -> None:
    before = "".join(f"    {line}\n" for line in rules()[code].before.splitlines())
    assert code in {finding.rule for finding in found_in(NAMES + before)}
