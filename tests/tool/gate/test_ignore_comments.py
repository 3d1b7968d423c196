"""`# unpatch: ignore[RULE]` on the line or above; one that suppresses nothing is a finding itself."""

import pytest
from checking import Source, check_found, check_noop, found_in, with_mocks

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.gate.suppress import Ignore, _suppressing

IMPORT = "from megatron.core.models.gpt import GPTModel\n"


def rules(source: Source) -> list[tuple[str, int]]:
    """(rule, line) of what is left."""
    return [(finding.rule, finding.line) for finding in found_in(source)]


@pytest.mark.parametrize(
    "comment",
    [
        "# unpatch: ignore[MCU601]",
        "# unpatch: ignore",
        "# unpatch: ignore[MCU6]",
        "# unpatch: ignore[MCU]",
        "# unpatch: ignore[mcu601]",
        "#unpatch:ignore[MCU601]",
        "#  unpatch:  ignore[ MCU601 ]",
        "# noqa: F401  # unpatch: ignore[MCU601] until 0.19",
    ],
)
@pytest.mark.parametrize("place", ["GPTModel.forward = print  {comment}\n", "{comment}\nGPTModel.forward = print\n"])
def test_on_the_line_or_above(place: str, comment: str) -> None:
    check_noop(IMPORT + place.format(comment=comment))


def test_several_codes() -> None:
    check_noop("""
        from megatron.core.models.gpt import GPTModel
        from megatron.core import utils
        GPTModel.forward, utils.get_model_config = print, print  # unpatch: ignore[MCU601, MCU602]
    """)


def test_one_of_several_codes_is_idle() -> None:
    finding = check_found(
        IMPORT + "GPTModel.forward = print  # unpatch: ignore[MCU601, MCU203]\n", rule="MCU001", line=2
    )
    assert "MCU203" in finding.message
    assert "MCU601" not in finding.message


def test_another_code_suppresses_nothing() -> None:
    assert rules(IMPORT + "GPTModel.forward = print  # unpatch: ignore[MCU101]\n") == [("MCU601", 2), ("MCU001", 2)]


def test_comments_above_stack_up() -> None:
    check_noop("""
        from megatron.core.models.gpt import GPTModel
        from megatron.core import utils
        # unpatch: ignore[MCU602]
        # unpatch: ignore[MCU601]
        GPTModel.forward, utils.get_model_config = print, print
    """)


def test_with_indentation() -> None:
    check_noop(IMPORT + "def patch():\n    # unpatch: ignore[MCU601]\n    GPTModel.forward = print\n")


@pytest.mark.parametrize("line", [2, 3, 4])
def test_on_any_line_of_a_statement(line: int) -> None:
    lines = [IMPORT.rstrip(), "GPTModel.forward = wrap(", "    print,", ")"]
    lines[line - 1] += "  # unpatch: ignore[MCU601]"
    check_noop("\n".join(lines) + "\n")


@pytest.mark.parametrize("line", [3, 4])
def test_a_comment_on_a_line_of_its_own_inside_a_statement_says_nothing_of_it(line: int) -> None:
    lines = [IMPORT.rstrip(), "GPTModel.forward = wrap(", "    print,", ")"]
    lines.insert(line - 1, "    # unpatch: ignore[MCU601]")
    assert rules("\n".join(lines) + "\n") == [("MCU601", 2), ("MCU001", line)]


def test_a_comment_inside_the_next_statement_is_not_above() -> None:
    assert ("MCU601", 4) in rules(IMPORT + "# unpatch: ignore[MCU601]\n\nGPTModel.forward = print\n")


def test_a_trailing_comment_of_the_line_before_does_not_count() -> None:
    assert rules(IMPORT + "x = 1  # unpatch: ignore[MCU601]\nGPTModel.forward = print\n") == [
        ("MCU001", 2),
        ("MCU601", 3),
    ]


def test_text_in_a_string_is_no_comment() -> None:
    assert rules(IMPORT + "GPTModel.forward = wrap('# unpatch: ignore[MCU601]')\n") == [("MCU601", 2)]
    assert rules(IMPORT + "'''\n# unpatch: ignore\n'''\nGPTModel.forward = print\n") == [("MCU601", 5)]


def test_unused_in_a_file_without_megatron() -> None:
    check_found("x = 1  # unpatch: ignore[MCU601]\n", rule="MCU001", line=1, column=8, target="")


def test_unused_bare() -> None:
    check_found("x = 1  # unpatch: ignore\n", rule="MCU001")


def test_unused_can_be_suppressed_by_selection_only() -> None:
    from mcore_unpatch.findings.rules import Selection

    assert found_in("x = 1  # unpatch: ignore\n", selection=Selection.parse([], ["MCU001"])) == []
    assert found_in("x = 1  # unpatch: ignore\n", selection=Selection.parse(["MCU1"], [])) == []


def test_a_comment_for_a_rule_that_is_not_selected_is_left_in_peace() -> None:
    """`--select MCU1` looks at part of the rules: the comments of the others are not unused."""
    from mcore_unpatch.findings.rules import Selection

    source = IMPORT + "GPTModel.forward = print  # unpatch: ignore[MCU601]\n"
    assert found_in(source, selection=Selection.parse(["MCU0", "MCU1"], [])) == []


def test_a_mock_comment_is_not_unused_while_mocks_are_off() -> None:
    source = (
        "from unittest import mock\n"
        "def test_it():\n"
        "    mock.patch('megatron.core.utils.get_model_config')  # unpatch: ignore[MCU901]\n"
    )
    assert found_in(source) == []
    assert found_in(source, **with_mocks()) == []


def test_windows_line_ends_and_other_encodings() -> None:
    text = "# -*- coding: latin-1 -*-\r\n# caf\xe9\r\n" + IMPORT.replace("\n", "\r\n")
    check_noop({"a.py": (text + "GPTModel.forward = print  # unpatch: ignore\r\n").encode("latin-1")})


@pytest.mark.parametrize(
    ("ignores", "covered"),
    [
        ({}, None),
        ({5: (True, "")}, None),
        ({5: (False, "")}, 5),
        ({6: (False, "")}, 6),
        ({7: (False, "")}, None),
        ({4: (True, "")}, 4),
        ({4: (False, "")}, None),
        ({3: (True, "")}, None),
        ({3: (True, ""), 4: (True, "MCU9")}, 3),
        ({3: (True, ""), 4: (False, "MCU9")}, None),
        ({4: (True, "MCU6"), 5: (False, "MCU601")}, 4),
        ({4: (True, "MCU9"), 5: (False, "MCU601")}, 5),
        ({5: (False, "MCU9"), 6: (False, "MCU6")}, 6),
    ],
)
def test_which_comment_speaks_for_a_patch_on_two_lines(
    ignores: dict[int, tuple[bool, str]], covered: int | None
) -> None:
    """Alone on its line it speaks for what follows, else for its own line."""
    by_line = {line: Ignore(line, 1, (code,) if code else (), alone, "") for line, (alone, code) in ignores.items()}
    patch = Finding("MCU601", "a.py", 5, 1, 6, "megatron.core.utils.divide", "module-attr", "")
    found = _suppressing(patch, by_line)
    assert (found and found.line) == covered
