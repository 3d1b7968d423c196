"""What the replacements need besides the tool: an error that names what is missing, or too old, and how to get it."""

import re
from importlib import import_module

NEEDED = (0, 18)
_FROM_EXTRA = {"torch": "torch", "triton": "triton", "megatron": "megatron-core"}


def missing_from_extra(what: str, error: ModuleNotFoundError) -> ImportError:
    """The error for a package of the extra that `what` needs; raises `error` itself for any other package."""
    package = _FROM_EXTRA.get((error.name or "").partition(".")[0])
    if package is None:
        raise error
    return ImportError(f"{what} needs {package}, which is not installed; run `pip install 'mcore-unpatch[compat]'`.")


def require_megatron(shim: str) -> None:
    """Raise an ImportError unless torch, triton and a megatron-core with the hook are installed."""
    try:
        found = str([import_module(package) for package in ("torch", "triton", "megatron.core")][-1].__version__)
    except ModuleNotFoundError as error:
        raise missing_from_extra(shim, error) from error
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers is not None and tuple(map(int, numbers.groups())) < NEEDED:
        needed = ".".join(map(str, NEEDED))
        raise ImportError(
            f"{shim} needs megatron-core >= {needed}, the first release with the output_processor hook, but {found} is "
            f"installed; run `pip install 'megatron-core>={needed}'`."
        )
