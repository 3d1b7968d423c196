"""Which side runs: asked at the import of a replacement, whose ImportError is the way back to the patch, and said once.

The signature of `GPTModel.forward` is asked: Megatron's main branch said 0.18.0 long before it had the hook.
"""

import inspect
import logging
import os
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

_FROM_EXTRA = {"torch": "torch", "triton": "triton", "megatron": "megatron-core"}
_SWITCH, _SOME_OFF = "MCORE_UNPATCH", "MCORE_UNPATCH_OFF"
HOOK = "Megatron's output_processor hook"


def falls_back(why: str) -> ImportError:
    """The error by which a guarded import takes the old code, said once in the log: the guard itself says nothing."""
    _say_why(why)
    return ImportError(why)


@cache
def _say_why(why: str) -> None:
    _log("%s A guarded import takes the code that this replaces.", why)


def _log(text: str, *values: str) -> None:
    """A warning on rank 0, which people see without configuring anything; on other ranks for information."""
    distributed, first = sys.modules.get("torch.distributed"), os.environ.get("RANK", "0") == "0"
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        first = distributed.get_rank() == 0
    logging.getLogger("mcore_unpatch").log(logging.WARNING if first else logging.INFO, text, *values)


def missing_from_extra(what: str, error: ModuleNotFoundError, extra: str = "compat") -> ImportError:
    """The error for a package of the extra that `what` needs; raises `error` itself for any other package."""
    package = _FROM_EXTRA.get((error.name or "").partition(".")[0])
    if package is None:
        raise error
    return ImportError(f"{what} needs {package}, which is not installed; run `pip install 'mcore-unpatch[{extra}]'`.")


def require_switched_on(what: str) -> None:
    """Raise an ImportError if MCORE_UNPATCH=0, or if MCORE_UNPATCH_OFF=a,b.c names `what` or its package."""
    everything, some = os.environ.get(_SWITCH) == "0", os.environ.get(_SOME_OFF, "")
    if everything or any(f"{_short(what)}.".startswith(f"{name}.") for name in _switched_off(some)):
        switch = f"{_SWITCH}=0" if everything else f"{_SOME_OFF}={some}"
        raise falls_back(f"{what} is switched off by {switch} in the environment; unset it to use the replacement.")


@cache
def _switched_off(names: str) -> list[str]:
    """The modules and packages that a value of MCORE_UNPATCH_OFF names; a warning for what is none."""
    found = [_short(name.strip()) for name in names.split(",") if name.strip()]
    for name in found:
        place = Path(__file__).parent.joinpath(*name.split("."))
        if not place.is_dir() and not place.with_name(f"{place.name}.py").is_file():
            logging.getLogger("mcore_unpatch").warning("%s=%s switches nothing off: no such shim.", _SOME_OFF, name)
    return found


def _short(name: str) -> str:
    """What MCORE_UNPATCH_OFF calls the module `name`."""
    return name.removeprefix("mcore_unpatch.compat.")


def require_megatron(what: str) -> None:
    """Raise an ImportError unless torch and megatron-core are installed, or if it is switched off."""
    require_switched_on(what)
    try:
        import_module("torch")
        import_module("megatron.core")
    except ModuleNotFoundError as error:
        raise missing_from_extra(what, error) from error


def require_hook(what: str, *, unpatched: bool = False) -> None:
    """Raise an ImportError unless `GPTModel.forward` has the hook, `unpatched` if asked, or if switched off."""
    require_megatron(what)
    model = import_module("megatron.core.models.gpt.gpt_model").GPTModel
    forward = model.forward
    if "output_processor" in inspect.signature(forward).parameters:
        found = import_module(f"{__package__}.hook.find").foreign_methods(model) if unpatched else []
        if found:
            raise falls_back(f"{what} refuses a patched GPTModel, and {found[0]} has replaced Megatron's method.")
        return
    home, version = getattr(forward, "__module__", None) or "?", import_module("megatron.core").__version__
    remedy = "releases have it from 0.18 on: run `pip install 'megatron-core>=0.18'`"
    if not home.startswith("megatron.core."):
        remedy = f"{home}.{getattr(forward, '__qualname__', forward)} has replaced it, and runs as before"
    raise falls_back(
        f"{what} needs {HOOK}, but GPTModel.forward has no parameter output_processor (megatron-core {version}); "
        f"{remedy}."
    )


@cache
def say_once(what: str, runs_on: str = HOOK) -> None:
    """Log which side runs, at the first call of `what` in a process."""
    _log(
        "%s runs on %s, in place of a patch; %s=0 in the environment brings every patch back, %s=%s this one.",
        *(what, runs_on, _SWITCH, _SOME_OFF, _short(what)),
    )
