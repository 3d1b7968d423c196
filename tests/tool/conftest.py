"""Makes the helpers beside the tests importable: `checking`, `command`, `repository`, and `downloads` one folder up."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
