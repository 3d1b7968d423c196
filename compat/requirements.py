"""What a shim needs before anything else: torch and a megatron-core that has the hook. Said at import, not later."""

import re
from importlib import import_module

NEEDED = (0, 18)


def require_megatron(shim: str) -> None:
    """Raise an ImportError that names what is missing, or the version found and the one needed."""
    for package in ("torch", "triton", "megatron.core"):
        try:
            module = import_module(package)
        except ModuleNotFoundError as error:
            missing = (error.name or package).partition(".")[0]
            if missing not in ("torch", "triton", "megatron"):
                raise
            name = "megatron-core" if missing == "megatron" else missing
            raise ImportError(
                f"{shim} needs {name}, which is not installed: pip install 'mcore-unpatch[compat]'"
            ) from error
    found = str(module.__version__)
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers is not None and tuple(map(int, numbers.groups())) < NEEDED:
        needed = ".".join(map(str, NEEDED))
        raise ImportError(
            f"{shim} needs megatron-core >= {needed}, the first with the output_processor hook; found {found}: "
            f"pip install 'megatron-core>={needed}'"
        )
