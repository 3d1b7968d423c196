"""Measurements that go wrong: in a file of their own, because ranks import what they run by its name."""

from dataclasses import replace

from mcore_unpatch.verify.measure import Row, measured, run
from mcore_unpatch.verify.models import Setting


def wrong_by_a_little(setting: Setting) -> list[Row]:
    return [replace(row, error=row.error + 1e-4) for row in measured(setting)]


def not_a_number(setting: Setting) -> list[Row]:
    return [Row(setting.name, "log-probs", float("nan"), 1.0)]


def breaks(setting: Setting) -> list[Row]:
    raise RuntimeError("no such thing")


if __name__ == "__main__":  # a process that has computed with several threads must not be forked: its child would hang
    (rows,) = run([Setting("GPT")], wrong_by_a_little)
    print(*{row.verdict for row in rows})
