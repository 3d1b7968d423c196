"""The examples of a codemod are its tests, its page, and what `unpatch explain` prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import load_builder

from mcore_unpatch.codemods.codemod import Codemod, Example
from mcore_unpatch.codemods.registry import own
from mcore_unpatch.codemods.testing import check_example
from mcore_unpatch.findings.rules import rules

DOCS = Path(__file__).parents[3] / "docs"
CODEMODS = {codemod.name: codemod for codemod in own()}
EXAMPLES = [(codemod, example) for codemod in own() for example in codemod.examples]


@pytest.mark.skipif(not DOCS.is_dir(), reason="the wheel has no pages")
def test_the_pages_in_docs_are_made_from_the_classes() -> None:
    pages = load_builder("build_downstream_pages").pages()
    assert {name: (DOCS / name).read_text(encoding="utf-8") for name in pages} == pages


@pytest.mark.parametrize(("codemod", "example"), EXAMPLES, ids=[example.rule for _, example in EXAMPLES])
def test_before_becomes_after(codemod: Codemod, example: Example) -> None:
    check_example(codemod, example)


@pytest.mark.parametrize("name", CODEMODS)
def test_every_rule_has_an_example_that_is_explained(name: str) -> None:
    codemod = CODEMODS[name]
    assert {rule.code for rule in codemod.rules} <= {one.rule for one in codemod.examples}
    assert codemod.examples
    for rule in codemod.rules:
        assert rules()[rule.code].before
        assert rules()[rule.code].after


@pytest.mark.parametrize("name", CODEMODS)
def test_the_words_are_in_every_example_of_its_own_rules(name: str) -> None:
    own_rules = {rule.code for rule in CODEMODS[name].rules}
    for example in CODEMODS[name].examples:
        if example.rule in own_rules:
            assert any(word in example.before.encode() for word in CODEMODS[name].words)


def test_a_word_for_every_name() -> None:
    from mcore_unpatch.codemods.catalogue.nemo_rl import FLAG, NEMO_RL
    from mcore_unpatch.codemods.catalogue.verl import VERL

    for contract in (VERL, NEMO_RL):
        names = [name for shim in contract.shims for name in (*shim.names, *([shim.module] * contract.knows_modules))]
        for name in (*names, *([FLAG] if contract is NEMO_RL else [])):
            assert any(word in name.encode() for word in contract.words), name
