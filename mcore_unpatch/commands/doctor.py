"""`unpatch doctor`: is what is installed what fits together?"""

from __future__ import annotations

from typing import Annotated

import typer

from mcore_unpatch.commands.guard import EXIT_CLEAN, EXIT_FINDINGS, guarded, reporting

Json = Annotated[bool, typer.Option("--json", help="Write the report as JSON.")]
_SIGNS = {"ok": "ok", "missing": "--", "wrong": "!!"}


@guarded
def doctor(json: Json = False) -> int:
    """Say what is installed, whether the hook is there, and what will work.

    Nothing is imported: it works without torch and without Megatron, and says so.
    Exit code: 0 if everything fits, 1 if something is in the way of the replacements.
    """
    from mcore_unpatch.doctor import examine

    lines = examine()
    with reporting():
        if json:
            from dataclasses import asdict
            from json import dumps

            print(dumps({"version": 1, "lines": [asdict(line) for line in lines]}, indent=2))
        else:
            from mcore_unpatch.report.lines import show, wrapped

            width = max(len(line.about) for line in lines)
            for line in lines:
                show(wrapped(line.said, 0, f"{_SIGNS[line.state]}  {line.about:{width}}  "))
                if line.remedy:
                    show(wrapped(line.remedy, width + 6, "= "))
    return EXIT_FINDINGS if any(line.state == "wrong" for line in lines) else EXIT_CLEAN
