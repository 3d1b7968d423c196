"""`unpatch verify`: does the new path give the old numbers, on this machine and these versions?"""

from __future__ import annotations

import sys
import warnings
from dataclasses import asdict
from importlib.metadata import version
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcore_unpatch.commands.guard import EXIT_CLEAN, EXIT_ERROR, EXIT_FINDINGS, guarded, note, reporting
from mcore_unpatch.commands.options import option
from mcore_unpatch.errors import UsageError

if TYPE_CHECKING:
    from mcore_unpatch.verify.measure import Row
    from mcore_unpatch.verify.models import Setting

Tp = Annotated[int, typer.Option("--tp", min=1, help="Tensor-parallel ranks; each is a process.")]
Cp = Annotated[int, typer.Option("--cp", min=1, help="Context-parallel ranks.")]
Device = Annotated[str | None, option("--device", "cpu or cuda. [default: cuda if there is one for each rank]")]
_VALUES = "TransformerConfig values (JSON, TOML, YAML), which are scaled down."
ModelConfig = Annotated[Path | None, option("--model-config", _VALUES)]
Json = Annotated[bool, typer.Option("--json", help="Write the table as JSON.")]


@guarded
def verify(tp: Tp = 1, cp: Cp = 1, device: Device = None, model_config: ModelConfig = None, json: Json = False) -> int:
    """Prove that the hook gives the numbers of Megatron's default path.

    Builds small real models and compares log-probs, entropy and every gradient with the default path in float64.
    Exit code: 0 within tolerance, 1 beyond it, 2 if something could not be run.
    """
    from mcore_unpatch.compat.requirements import require_hook

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Megatron's, about Transformer Engine
        try:
            require_hook("unpatch verify")
        except ImportError as error:
            raise UsageError(str(error)) from None
    from mcore_unpatch.audit import wheel
    from mcore_unpatch.verify.measure import measured, run

    if wheel.installed() is not None and (changed := wheel.changed_files()[0]):
        more = f" and {len(changed) - 1} more" if changed[1:] else ""
        note(f"The installed megatron-core is not what its wheel has: {changed[0]}{more}.")
    settings = _settings(tp, cp, device, model_config)
    rows: list[Row] = []
    for some in run(settings, measured):
        rows += some
        if sys.stderr.isatty():
            print(f"{some[0].setting}: done", file=sys.stderr)
    with reporting():
        _write(rows, settings[0], json)
    if any(row.verdict == "FAILS" for row in rows):
        return EXIT_FINDINGS
    return EXIT_ERROR if any(row.note and row.quantity == "run" for row in rows) else EXIT_CLEAN


def _settings(tp: int, cp: int, device: str | None, model_config: Path | None) -> list[Setting]:
    import torch

    from mcore_unpatch.verify.models import Setting, read

    gpus = torch.cuda.device_count()
    device = device or ("cuda" if gpus >= tp * cp else "cpu")
    if device not in ("cpu", "cuda"):
        raise UsageError(f"--device {device}: use cpu or cuda.")
    if device == "cuda" and gpus < tp * cp:
        lacking = f"needs a GPU for each of {tp * cp} ranks, and there are {gpus}"
        raise UsageError(f"--device cuda {lacking}; use --device cpu.")
    values: dict[str, Any] = {}
    if model_config is not None:
        values, left_out = read(model_config)
        if left_out:
            note(f"Left out of {model_config}, because it says where and how fast: {', '.join(left_out)}.")
    if (values.get("num_attention_heads", 4) % tp) or (values.get("num_query_groups", 4) % tp):
        raise UsageError(f"--tp {tp} does not divide the attention heads of the small model, 4; use 1, 2 or 4.")
    common: dict[str, Any] = {"tp": tp, "cp": cp, "device": device, "values": values}
    kinds: dict[str, dict[str, Any]] = {
        "GPT": {},
        "GPT, tied": {"tied": True},
        "GPT, MTP": {"mtp": True},
        "GPT, bf16": {"dtype": "bfloat16"},
        "Hybrid": {"hybrid": True},
    }
    if device == "cpu" and tp * cp > 1:
        del kinds["GPT, MTP"]
        note("Without MTP: over several ranks its loss needs a GPU.")
    return [Setting(name, **common, **kind) for name, kind in kinds.items()]


def _write(rows: list[Row], setting: Setting, json: bool) -> None:
    versions = {name: version(name) for name in ("megatron-core", "torch")}
    layout = {"tp": setting.tp, "cp": setting.cp, "device": setting.device}
    if json:
        table = [{**asdict(row), "verdict": row.verdict} for row in rows]
        print(dumps({"version": 1, "versions": versions, "layout": layout, "rows": table}, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    title = f"megatron-core {versions['megatron-core']}, torch {versions['torch']}, {setting.device}"
    print(f"{title}, TP {setting.tp}, CP {setting.cp}")
    drawn = Table("configuration", "quantity", "largest error", "tolerance", "verdict")
    for row in rows:
        figures = ("", "") if row.note else (f"{row.error:.1e}", f"{row.tolerance:.1e}")
        drawn.add_row(row.setting, row.quantity, *figures, row.verdict)
    Console().print(drawn)
    for row in rows:
        if row.note:
            print(f"{row.setting}, {row.quantity}: {row.note}")
