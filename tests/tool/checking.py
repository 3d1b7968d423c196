"""One sentence per test: this source is found as that, or not at all."""

import ast
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcore_unpatch.findings.finding import Finding, Report
from mcore_unpatch.findings.rules import Selection
from mcore_unpatch.library.build import build
from mcore_unpatch.library.model import Model
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import LIBRARY, parse_version
from mcore_unpatch.survey.scan import scan
from mcore_unpatch.survey.survey import ScanOptions

CORE = "megatron.core"
GPT = f"{CORE}.models.gpt.gpt_model.GPTModel"
HYBRID = f"{CORE}.models.hybrid.hybrid_model.HybridModel"
MTP_LAYER = f"{CORE}.transformer.multi_token_prediction.MultiTokenPredictionLayer"
LAYER = f"{CORE}.transformer.transformer_layer.TransformerLayer"
BLOCK = f"{CORE}.transformer.transformer_block.TransformerBlock"
ROUTER = f"{CORE}.transformer.moe.router.TopKRouter"

Source = str | Mapping[str, str | bytes]


def write_files(folder: Path, source: Source) -> None:
    """Write one module, or the files of a repository by path; Python text must be valid Python."""
    files = {"patches.py": source} if isinstance(source, str) else source
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(text, bytes):
            path.write_bytes(text)
            continue
        text = textwrap.dedent(text)
        if name.endswith(".py"):
            ast.parse(text)
        path.write_text(text, encoding="utf-8")


def small_release(label: str, text: str, elsewhere: str = "") -> Model:
    """A Megatron of one module of a few lines, `megatron.core.utils`, and of `megatron.core.elsewhere`."""
    texts = {"__init__": "", "utils": text, "elsewhere": elsewhere}
    return build(LIBRARY, label, [(f"megatron/core/{name}.py", one.encode()) for name, one in texts.items()])


def releases(*names: str) -> list[Model]:
    """The models of some releases."""
    return [known.newest(parse_version(name)) for name in names]


def scan_source(source: Source, **options: Any) -> Report:
    """Scan a repository made of these files."""
    with tempfile.TemporaryDirectory() as name:
        write_files(Path(name), source)
        return scan([Path(name)], ScanOptions(**{"jobs": 1, **options}))


def found_in(source: Source, **options: Any) -> list[Finding]:
    """The findings of a repository in which every file can be analysed."""
    report = scan_source(source, **options)
    assert report.errors == []
    return report.findings


def check_noop(source: Source, **options: Any) -> None:
    """Nothing is found."""
    assert [(f.path, f.line, f.target, f.shape) for f in found_in(source, **options)] == []


def check_found(source: Source, *, options: dict[str, Any] | None = None, **expected: Any) -> Finding:
    """Exactly one finding, with these fields; `related` is compared as {role: lines}."""
    findings = found_in(source, **(options or {}))
    assert len(findings) == 1, [(f.path, f.line, f.target, f.shape) for f in findings]
    (finding,) = findings
    if "related" in expected:
        assert lines_by_role(finding) == expected.pop("related")
    assert {name: getattr(finding, name) for name in expected} == expected
    return finding


def lines_by_role(finding: Finding) -> dict[str, list[int]]:
    """The related lines of a finding, by their role."""
    roles: dict[str, list[int]] = {}
    for item in finding.related:
        roles.setdefault(item.role, []).append(item.line)
    return roles


def with_mocks() -> dict[str, Any]:
    """Options that select every rule, mocks too."""
    return {"selection": Selection.parse(["ALL"], [])}
