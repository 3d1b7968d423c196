"""The steps a person takes where an LM-head wrapper has no known form."""

from __future__ import annotations

from mcore_unpatch.findings import Finding

_USE = (
    "2. Where the model is at hand, write `handle = attach(model, HeadInputs())`, both from `mcore_unpatch.compat`. "
    "The model then returns hidden states as before; the weight is the processor's `.weight`, a toggle becomes "
    "`when=lambda: ...`, and `handle.remove()` undoes it.\n"
    "3. Better: call the model with `labels=` and `output_processor=LogProbs()` or `LogProbsAndEntropy()`, put the "
    "temperature into `output_processor_context={...}`, use the result as log-probs [b, s], and delete the projection."
)


def steps(finding: Finding, because: str) -> str:
    """What to do by hand, line by line."""
    lines = {
        role: ", ".join(str(related.line) for related in finding.related if related.role == role)
        for role in ("backup", "restore", "flag", "toggle")
    }
    said = {
        "backup": "the backup of the original (line {}) unless something else calls it",
        "restore": "the restore (line {})",
        "flag": "its flag (line {})",
        "toggle": "its toggle (line {})",
    }
    with_it = [said[role].format(where) for role, where in lines.items() if where]
    also = f", and with it {', '.join(with_it)}" if with_it else ""
    return f"Not rewritten: {because}.\n1. Delete the assignment on line {finding.line}{also}.\n{_USE}"
