"""`.patch` and `.diff` files that change Megatron Core's source."""

from __future__ import annotations

import re

from mcore_unpatch.findings import Finding, Related
from mcore_unpatch.paths import is_test

_HEADER = re.compile(rb"^(?:diff --git .*? b/(\S+)|\+\+\+ (?:b/)?([^\t\r\n]+)|--- (?:a/)?([^\t\r\n]+))", re.MULTILINE)
_CORE_FILE = re.compile(r"(?:^|/)(megatron/core/[\w./-]+)$")
_SHOWN = 3
_LONGEST_NAME = 4096  # bytes of a path


def finding_in(path: str, data: bytes) -> Finding | None:
    """One finding for a patch file that touches Megatron Core; the other files it touches are related lines."""
    touched: dict[str, int] = {}
    position, number = 0, 1
    for match in _HEADER.finditer(data):
        name = (match[1] or match[2] or match[3])[:_LONGEST_NAME].decode(errors="replace").strip().strip('"')
        core = _CORE_FILE.search(name)
        if core and core[1] not in touched:
            number += data.count(b"\n", position, match.start())
            position = match.start()
            touched[core[1]] = number
    if not touched:
        return None
    (first, line), *others = touched.items()
    modules = [_module(name) for name in touched]
    seam, rule = _seam(modules)
    more = f" and {len(others)} more file{'s' if len(others) > 1 else ''}" if others else ""
    listed = f": {', '.join(modules[1 : 1 + _SHOWN])}{' ...' if len(others) > _SHOWN else ''}" if others else ""
    source = data.split(b"\n", line)[line - 1].decode(errors="replace").rstrip("\r")
    return Finding(
        rule=rule,
        path=path,
        line=line,
        column=1,
        end_line=line,
        target=_module(first),
        shape="patch-file",
        seam=seam,
        message=f"changes `{first}`{more}{listed}",
        related=tuple(Related(number, "touches") for _, number in others),
        in_test=is_test(path),
        source=source,
    )


def _module(name: str) -> str:
    return name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def _seam(modules: list[str]) -> tuple[str, str]:
    """A seam only where every file the patch touches belongs to it."""
    if all(module.endswith("multi_token_prediction") for module in modules):
        return "mtp", "MCU204"
    return "none", "MCU608"
