"""`unpatch doctor`: is what is installed what fits together? Read from metadata and source: nothing is imported."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from json import dumps
from typing import Annotated

import typer
from packaging.version import Version

from mcore_unpatch.audit import wheel
from mcore_unpatch.commands.guard import EXIT_CLEAN, EXIT_FINDINGS, guarded, reporting
from mcore_unpatch.errors import UsageError
from mcore_unpatch.records import asdict, record
from mcore_unpatch.report.lines import show, wrapped
from mcore_unpatch.stacks.sources import installed_model

HOOK = "output_processor"
_GPT = "megatron.core.models.gpt.gpt_model.GPTModel"
_HYBRID = "megatron.core.models.hybrid.hybrid_model.HybridModel"
# What may be there: the distribution, and what is imported where that has another name.
_LIBRARIES = ("transformer-engine", "apex", "liger-kernel", "megatron-bridge", "mcore-bridge", "mbridge")
_DOWNSTREAMS = ("verl", "nemo-rl", "skyrl", "slime", "miles", "roll", "areal")
_IMPORTED = {"megatron-bridge": "megatron.bridge"}
_OWN = ("libcst", "packaging", "rich", "typer")
Json = Annotated[bool, typer.Option("--json", help="Write the report as JSON.")]
_SIGNS = {"ok": "ok", "missing": "--", "wrong": "!!"}


@guarded
def doctor(json: Json = False) -> int:
    """Say what is installed, whether the hook is there, and what will work.

    Nothing is imported: it works without torch and without Megatron, and says so.
    Exit code: 0 if everything fits, 1 if something is in the way of the replacements.
    """
    lines = examine()
    with reporting():
        if json:
            print(dumps({"version": 1, "lines": [asdict(line) for line in lines]}, indent=2))
        else:
            width = max(len(line.about) for line in lines)
            for line in lines:
                show(wrapped(line.said, 0, f"{_SIGNS[line.state]}  {line.about:{width}}  "))
                if line.remedy:
                    show(wrapped(line.remedy, width + 6, "= "))
    return EXIT_FINDINGS if any(line.state == "wrong" for line in lines) else EXIT_CLEAN


@record
class Line:
    """One line of the examination. state: ok, missing (and not needed), or wrong, with what to do about it."""

    about: str
    said: str
    state: str = "ok"
    remedy: str = ""


def examine() -> list[Line]:
    """Every line, top to bottom: what is installed, what the hook reaches, which replacements will work."""
    lines = [_python(), *_torch(), *_megatron()]
    modules = {name: _IMPORTED.get(name, name.replace("-", "_")) for name in (*_LIBRARIES, *_DOWNSTREAMS)}
    for name, module in modules.items():
        version = _version(name)
        with suppress(ImportError, ValueError):
            if version or find_spec(module) is not None:
                lines.append(Line(name, version or f"importable as {module}, of no known version"))
    for name in _OWN:
        version = _version(name)
        lines.append(Line(name, version) if version else Line(name, "not installed", "wrong", f"pip install {name}"))
    lines += _hooks()
    return [*lines, _replacements(lines)]


def _python() -> Line:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 12):
        return Line("Python", version, "wrong", "megatron-core 0.18+, and so the replacements, need Python 3.12")
    return Line("Python", version)


def _torch() -> list[Line]:
    lines = []
    for name, needed in (("torch", (2, 6)), ("triton", (3, 2))):
        version = _version(name)
        if version is None:
            remedy = "pip install 'mcore-unpatch[compat]'; scan, migrate, check and pin work without it"
            lines.append(Line(name, "not installed", "wrong", remedy))
        elif Version(version).release[:2] < needed:
            least = ".".join(map(str, needed))
            lines.append(Line(name, version, "wrong", f"the replacements need {name} {least} or newer"))
        else:
            lines.append(Line(name, version))
    return lines


def _megatron() -> list[Line]:
    folder, distribution = wheel.folder_in_use(), wheel.installed()
    if folder is None:
        return [Line("megatron-core", "not installed", "wrong", "pip install 'mcore-unpatch[compat]' (Python 3.12)")]
    if distribution is None:
        release = installed_model()
        label = release.label if release is not None else "unknown"
        return [Line("megatron-core", f"{label} from the checkout {folder}", "ok")]
    changed, _ = wheel.changed_files()
    if changed:
        said = f"{distribution.version}, but {changed[0]}" + (f" and {len(changed) - 1} more" if changed[1:] else "")
        remedy = "reinstall it, or keep the change as a patch file that scan reads"
        return [Line("megatron-core", said, "wrong", remedy)]
    return [Line("megatron-core", f"{distribution.version}, as the wheel has it")]


def _hooks() -> list[Line]:
    """Whether the hook is there, by the source of the installed Megatron."""
    try:
        release = installed_model()
    except UsageError as error:
        return [Line("output hook", str(error), "wrong")]
    lines = []
    names = (f"{_GPT}.forward", f"{_GPT}.build_schedule_plan", f"{_HYBRID}.forward")
    for name in names if release is not None else ():
        short = ".".join(name.split(".")[-2:])
        seen = release.find(name) if release is not None else None
        if seen is None:
            lines.append(Line(short, "does not exist here", "missing"))
        elif HOOK in seen.fact.detail.replace("=", " ").split():
            lines.append(Line(short, f"takes {HOOK}"))
        elif name.startswith(_HYBRID):
            remedy = "attach() and provide_hook() of mcore_unpatch.compat work through its output layer"
            lines.append(Line(short, f"has no {HOOK}", "missing", remedy))
        else:
            lines.append(Line(short, f"has no {HOOK}", "wrong", "upgrade to megatron-core 0.18 or newer"))
    return lines


def _replacements(lines: list[Line]) -> Line:
    """Which of our replacements will work, from the lines before."""
    state = {line.about: line for line in lines}
    needed = ("Python", "torch", "triton", "megatron-core", "GPTModel.forward")
    in_the_way = [name for name in needed if name in state and state[name].state == "wrong"]
    if in_the_way:
        return Line("mcore_unpatch.compat", f"will not work: {', '.join(in_the_way)}", "wrong", "see the lines above")
    plan = state.get("GPTModel.build_schedule_plan", Line("", "", "wrong"))
    limits = "" if plan.state == "ok" else "; not in a schedule plan"
    return Line("mcore_unpatch.compat", f"works: veRL, NeMo RL, SkyRL, slime, miles, ROLL, AReaL{limits}")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
