"""What one codemod found to do."""

from __future__ import annotations

from dataclasses import dataclass, field

from mcore_unpatch.codemods.changes import Asked
from mcore_unpatch.codemods.edits import Remark
from mcore_unpatch.findings import Finding


@dataclass
class Outcome:
    """Changes, remarks, and the findings that are gone once the changes are made."""

    asked: list[Asked] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    removes: list[Finding] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """What another codemod found, behind what is here."""
        self.asked += other.asked
        self.remarks += other.remarks
        self.removes += other.removes
