"""What findings quote of a file, and in which column they stand."""

import pytest

from mcore_unpatch.scanner.sources.quoting import Text

LINES = ["one", "two é and more", "three", "ü = 'ß'; x = 1"]


@pytest.mark.parametrize("order", [1, -1])
def test_every_span_of_lines(order: int) -> None:
    text = Text(LINES)
    spans = [(first, last) for first in range(1, 5) for last in range(first, 5)]
    for first, last in [*spans[::order], *spans]:
        assert text.between(first, last) == "\n".join(LINES[first - 1 : last])


@pytest.mark.parametrize("order", [1, -1])
def test_offsets_in_characters(order: int) -> None:
    """Forwards and backwards on a line, and from line to line."""
    text = Text(LINES)
    places = [(line, at) for line, whole in enumerate(LINES, 1) for at in range(len(whole) + 1)]
    for line, at in [*places[::order], *places[::3], *places[::-2]]:
        assert text.characters(line, len(LINES[line - 1][:at].encode())) == at
