"""SVG line plots without a plotting library."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COLOURS = ("#0b6e4f", "#c0392b", "#7f8c8d", "#2e6da4", "#b07d12")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 400, 70, 20, 50, 60
Line = Sequence[tuple[float, float]]


def draw_all(report: dict[str, Any], folder: Path) -> None:
    """Time against tokens, memory against tokens, time against the masked part."""
    folder.mkdir(parents=True, exist_ok=True)
    done = [row for row in report["tokens"] if "failed" not in row]
    names = list(dict.fromkeys(row["peer"] for row in done))
    for key, title, file in (
        ("ms", "Forward + backward, ms (H = 4096, V = 151936)", "time-tokens.svg"),
        ("gib", "Peak memory beyond inputs, outputs and gradients, GiB", "memory-tokens.svg"),
    ):
        lines = {name: [(row["tokens"], row[key]) for row in done if row["peer"] == name] for name in names}
        (folder / file).write_text(plot(title, "tokens", lines, logarithmic=True))
    lines = {}
    for row in report["masks"]:
        if row["count_known"] and "failed" not in row:
            lines.setdefault(" x ".join(map(str, row["shape"])), []).append((row["masked"], row["ms"]))
    lines = {name: [(part, ms / line[0][1]) for part, ms in line] for name, line in lines.items() if line[0][0] == 0}
    kept: dict[str, Any] = {}
    for row in report.get("kept", []):
        if "failed" not in row:
            kept.setdefault(" x ".join(map(str, row["shape"])), []).append((row["gib"], row["ms"]))
    title = "Forward + backward, ms, against GiB held (all kept at the right end)"
    (folder / "time-kept.svg").write_text(plot(title, "GiB beyond inputs, outputs and gradients", kept, True))
    title = "Time relative to no row masked"
    (folder / "time-masked.svg").write_text(plot(title, "masked part of the rows", lines, logarithmic=False))


def plot(title: str, below: str, lines: dict[str, Any], logarithmic: bool) -> str:
    """One plot; `logarithmic` on both axes."""
    points = [point for line in lines.values() for point in line]
    if not points:
        return _svg([_text(WIDTH / 2, HEIGHT / 2, "nothing was measured", "middle")])
    across = _scale([x for x, _ in points], LEFT, WIDTH - RIGHT, logarithmic)
    up = _scale([y for _, y in points], HEIGHT - BOTTOM, TOP, logarithmic)
    parts = [_text(WIDTH / 2, 20, title, "middle", 15), _text(WIDTH / 2, HEIGHT - 12, below, "middle")]
    marks = {x: f"{x:.2g}" if x < 100 else f"{x:g}" if x < 1024 else f"{x / 1024:g}k" for x, _ in points}
    parts += [_text(across(x), HEIGHT - BOTTOM + 18, mark, "middle", 11) for x, mark in marks.items()]
    for y in _ticks([y for _, y in points], logarithmic):
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(y):.1f}" y2="{up(y):.1f}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 8, up(y) + 4, f"{y:g}", "end", 11))
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3" fill="{colour}"/>' for x, y in line]
        # Logarithmic lines rise to the right and leave the upper left free; the others fall.
        x, anchor = (LEFT + 12, "start") if logarithmic else (WIDTH - RIGHT - 12, "end")
        parts.append(_text(x, TOP + 16 * (number + 1), name, anchor, 12, colour))
    return _svg(parts)


def _scale(values: Sequence[float], start: float, end: float, logarithmic: bool) -> Any:
    low, high = (min(values), max(values)) if logarithmic else (0.0, max(values))
    low, high = (math.log(low), math.log(high)) if logarithmic else (low, high)
    span = (high - low) or 1.0
    return lambda value: start + (end - start) * ((math.log(value) if logarithmic else value) - low) / span


def _ticks(values: Sequence[float], logarithmic: bool) -> list[float]:
    if not logarithmic:
        return [max(values) * step / 5 for step in range(6)]
    lowest, highest = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    steps = [digit * 10.0**power for power in range(lowest, highest + 1) for digit in (1, 2, 5)]
    return [step for step in steps if min(values) <= step <= max(values)]


def _text(x: float, y: float, words: str, anchor: str, size: int = 13, colour: str = "#333") -> str:
    words = words.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{words}</text>'


def _svg(parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', *parts, "</svg>"]) + "\n"
