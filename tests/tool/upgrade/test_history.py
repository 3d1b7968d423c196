"""The packed history is what the released wheels say."""

import pytest
from downloads import unpacked

from mcore_unpatch.megatron import history
from mcore_unpatch.megatron.definitions import Definition, read_module, read_release

GPT = "megatron.core.models.gpt.gpt_model.GPTModel"


@pytest.mark.slow
def test_one_release_read_anew_is_the_one_that_is_packed() -> None:
    assert read_release(unpacked("megatron-core", "0.18.2")) == history.snapshot("0.18.2")


def test_packing_is_reproducible_and_loses_nothing() -> None:
    first = read_module(
        b"import os\nclass A(B):\n    x = 1\n    def f(self, a, *, b=2):\n        return a\n", "megatron.core.m"
    )
    second = read_module(
        b"import os\nclass A(C):\n    def f(self, a):\n        self.y = a\n        return a\n", "megatron.core.m"
    )
    snapshots = {"1.0": first, "1.1": second, "1.2": {}, "1.3": first}
    packed = history.pack(snapshots)
    assert packed == history.pack(snapshots)
    known = history.unpack(packed)
    assert known.releases == ("1.0", "1.1", "1.2", "1.3")
    assert dict(known.names["megatron.core.m.A.f"])[0] == first["megatron.core.m.A.f"]
    assert known.names["megatron.core.m.A.x"] == [
        (0, first["megatron.core.m.A.x"]),
        (1, None),
        (3, first["megatron.core.m.A.x"]),
    ]
    assert known.names["megatron.core.m.A.y"] == [(1, Definition("attribute")), (2, None)]
    assert known.names["megatron.core.m.A"][1] == (1, second["megatron.core.m.A"])
    assert second["megatron.core.m.A"].signature == "C"


def test_what_a_reader_may_change_freely_does_not_count() -> None:
    plain = read_module(b"def f(a, b=1):\n    return a\n", "megatron.core.m")
    dressed = read_module(
        b'def f(a: int, b: int = 1) -> int:\n    """Text."""\n    # why\n    return a\n', "megatron.core.m"
    )
    assert plain == dressed
    assert plain != read_module(b"def f(a, b=2):\n    return a\n", "megatron.core.m")


def test_a_definition_counts_more_than_what_stands_in_for_it() -> None:
    text = b"try:\n    class X:\n        pass\nexcept ImportError:\n    X = None\n"
    text += b"if A:\n    Y = None\nelse:\n    def Y():\n        pass\n"
    found = read_module(text, "megatron.core.m")
    assert (found["megatron.core.m.X"].kind, found["megatron.core.m.Y"].kind) == ("class", "function")


def test_the_life_of_a_function_is_told_by_release() -> None:
    versions = history.versions_of(f"{GPT}._postprocess")
    assert [release for release, _ in versions][:2] == ["0.13.0", "0.14.0"]
    since = {release: known for release, known in versions if known}
    assert "output_processor" not in since["0.17.0"].signature
    assert "output_processor=" in since["0.18.0"].signature.split()
    assert history.versions_of("megatron.core.no.such.name") == []
