# golden: path=fork/models/mcore/mtp_patch.py unsafe select=MCU
"""MTP for our fork."""

from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess

__all__ = ["patch_postprocess"]
