"""One Megatron by each of its names: what it is called, the releases that are judged for, in words, and how sure."""

import pytest

from mcore_unpatch.stacks.revision import Revision, of_specifiers

# Certain, a range, to be settled by the user.
Row = tuple[str, str, str, str]


def row(revision: Revision | None) -> Row | None:
    if revision is None:
        return None
    flags = {"certain": revision.certain, "range": revision.is_range, "ask": bool(revision.settle)}
    return revision.name, " ".join(revision.releases), revision.words, " ".join(name for name in flags if flags[name])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("==0.18", ("0.18.0", "0.18.0", "", "certain")),
        ("==0.18.0", ("0.18.0", "0.18.0", "", "certain")),
        ("===0.18.0", ("0.18.0", "0.18.0", "", "certain")),
        ("==0.18.*", ("==0.18.*", "0.18.0 0.18.2", "", "")),
        ("~=0.18.0", ("~=0.18.0", "0.18.0 0.18.2", "", "")),
        ("~=0.18", ("~=0.18", "0.18.0 0.19.2", "", "range")),
        (">=0.15,<0.17", (">=0.15,<0.17", "0.15.0 0.16.1", "", "range")),
        (">= 0.18.0, <=0.18.2 ,", (">=0.18.0,<=0.18.2", "0.18.0 0.18.2", "", "")),
        ("<=0.18.0,>=0.18.0", ("<=0.18.0,>=0.18.0", "0.18.0", "", "certain")),
        (">=0.18", (">=0.18", "0.18.0 0.19.2", "", "range")),
        ("<0.17", ("<0.17", "0.16.1", "", "range")),
        ("!=0.18.0", ("!=0.18.0", "0.19.2", "", "range")),
        (">=9", (">=9", "9.0.0", "", "range")),
        ("==0.18.0,!=0.17.0", ("==0.18.0,!=0.17.0", "0.18.0", "", "certain")),
        (">=0.8,<0.11", (">=0.8,<0.11", "0.12.0", "older than 0.12.0, the oldest known", "")),
        ("", None),
        ("wrong", None),
    ],
)
def test_a_requirement(text: str, expected: Row | None) -> None:
    assert row(of_specifiers(text)) == expected
