"""The check that each shim makes at import: torch is installed, and megatron-core has the hook."""

import re
from importlib import import_module

NEEDED = (0, 18)


def require_megatron(shim: str) -> None:
    """Raise an ImportError that names the missing package, or the installed version and the one needed."""
    for package in ("torch", "triton", "megatron.core"):
        try:
            module = import_module(package)
        except ModuleNotFoundError as error:
            missing = (error.name or package).partition(".")[0]
            if missing not in ("torch", "triton", "megatron"):
                raise
            name = "megatron-core" if missing == "megatron" else missing
            raise ImportError(
                f"{shim} needs {name}, which is not installed; run `pip install 'mcore-unpatch[compat]'`."
            ) from error
    found = str(module.__version__)
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers is not None and tuple(map(int, numbers.groups())) < NEEDED:
        needed = ".".join(map(str, NEEDED))
        raise ImportError(
            f"{shim} needs megatron-core >= {needed}, the first release with the output_processor hook, but {found} is "
            f"installed; run `pip install 'megatron-core>={needed}'`."
        )
