"""What `upgrade` says of uses, held to what Python does under two released wheels: a small run of `make oracle`."""

from pathlib import Path

import pytest
from builders import load_builder
from checking import write_files
from downloads import unpacked
from prepared import run_prepared

FILES = {
    "mine/__init__.py": "",
    "mine/fine.py": """
        import absent.package as absent
        from megatron.core import parallel_state

        @absent.mark
        def run(): ...
        """,
    "mine/broken.py": "from megatron.core.dist_checkpointing.strategies import base\n",
    "mine/through.py": "import megatron.core\nfrom mine.broken import base\n",
    "mine/called.py": """
        from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper as Log
        from megatron.core import parallel_state

        def log():
            Log.reduce_loss_in_tracker()
            parallel_state.get_data_parallel_group(with_context_parallel=True)
        """,
    "mine/guarded.py": """
        try:
            from megatron.core.dist_checkpointing.strategies import base
        except ImportError:
            base = None
        """,
}


@pytest.mark.first
@pytest.mark.slow
def test_every_new_exception_is_predicted_and_every_prediction_is_one(tmp_path: Path) -> None:
    oracle = load_builder("upgrade_oracle")
    (tmp_path / "sources").mkdir()
    for release in ("0.18.2", "0.19.2"):
        (tmp_path / "sources" / release).symlink_to(unpacked("megatron-core", release))
    write_files(tmp_path / "checkout", FILES)
    pair = ("0.18.2", "0.19.2")
    score = oracle.judge(tmp_path / "checkout", tmp_path / "sources", [pair], run=run_prepared)[pair]
    assert (score.imported, score.broke, score.predicted) == (5, 2, 2)
    assert (score.said, score.true, score.missed, score.false) == (2, 2, [], [])
