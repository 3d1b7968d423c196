"""What keeping logits does to the gradients of rows that are sure of their label, as a table: see docs/gpu.md.

    PYTHONPATH=tests/compat:tests python benchmarks/confident_rows.py [--tokens 64] [--vocab 151936] [--json FILE]

A GPU is needed: on a CPU nothing is kept. The rows are those of `tests/compat/fused_head/confident_rows.py`.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from fused_head.confident_rows import PROBABILITIES, confident, errors, kept_unkept_and_true

PULLS = {"log-probs": (1.0, 0.0), "entropy": (0.0, 1.0)}


def measure(tokens: int, vocab: int) -> list[dict[str, Any]]:
    """One row for each dtype, result and probability; the last is of nearly equal logits."""
    rows = []
    for dtype in (torch.bfloat16, torch.float16):
        for result, pulls in PULLS.items():
            for p in (*PROBABILITIES, 1 / vocab):
                inputs = confident(p, dtype, tokens, vocab, "cuda", pulls, spread=0.05 if p < 0.1 else 2.5)
                kept, unkept, truth = kept_unkept_and_true(inputs)
                row = {"dtype": str(dtype).removeprefix("torch."), "gradient of": result, "p": p}
                rows.append(row | {"kept": errors(kept, truth), "not kept": errors(unkept, truth)})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """In Markdown, `kept / not kept`."""
    chances = list(dict.fromkeys(row["p"] for row in rows))
    lines = [
        "| gradient of, weights, error of | "
        + " | ".join(f"p = {p:g}" if p >= 0.1 else "equal logits" for p in chances)
        + " |",
        "|---|" + "---|" * len(chances),
    ]
    for kind in dict.fromkeys((row["gradient of"], row["dtype"]) for row in rows):
        for part in ("dH", "dW"):
            cells = [
                f"{row['kept'][part]:.1e} / {row['not kept'][part]:.1e}"
                for row in rows
                if (row["gradient of"], row["dtype"]) == kind
            ]
            lines.append(f"| {kind[0]}, {kind[1]}, {part} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--vocab", type=int, default=151_936)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = measure(options.tokens, options.vocab)
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
