"""The real command line, with the codemod of the sample repository in the place of the real ones."""

import sys
import types

from sample_repository import planner

stand_in = types.ModuleType("mcore_unpatch.codemods.planner")
stand_in.plan, stand_in.downstreams = planner, lambda *_: []  # type: ignore[attr-defined]
sys.modules[stand_in.__name__] = stand_in

if __name__ == "__main__":
    from mcore_unpatch.cli import main

    main()
