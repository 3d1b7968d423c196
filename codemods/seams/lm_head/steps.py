"""The steps a person takes where an LM-head wrapper has no known form."""

from __future__ import annotations

from mcore_unpatch.findings import Finding

_USE = (
    "2. where the model is at hand, write `handle = attach(model, HeadInputs())`, both from `mcore_unpatch.compat`: "
    "the model returns hidden states as before, the weight is the processor's `.weight`, a toggle becomes "
    "`when=lambda: ...`, and `handle.remove()` takes it back; 3. better, give the call of the model `labels=` and "
    "`output_processor=LogProbs()` or `LogProbsAndEntropy()` instead, temperature and the like in "
    "`output_processor_context={...}`, use what it returns as log-probs [b, s], and delete the projection"
)


def steps(finding: Finding, because: str) -> str:
    """What to do by hand, line by line."""
    lines = {
        role: ", ".join(str(related.line) for related in finding.related if related.role == role)
        for role in ("backup", "restore", "flag", "toggle")
    }
    said = {
        "backup": "what keeps the original (line {}) unless something else calls it",
        "restore": "what puts it back (line {})",
        "flag": "its flag (line {})",
        "toggle": "its toggle (line {})",
    }
    with_it = [said[role].format(where) for role, where in lines.items() if where]
    also = f", and with it {', '.join(with_it)}" if with_it else ""
    return f"by hand, because {because}: 1. delete the assignment on line {finding.line}{also}; {_USE}"
