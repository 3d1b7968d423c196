"""The divergence of two distributions over the vocabulary, tile by tile: the formulas of `linear_kl`.

`a` and `b` are log-probs of student and teacher, `p` and `q` their exponentials. Each kind is
`sum p * f + sum q * g`; the gradient of a student's logit is `p * (f - sum p * f)` where only `f` depends on it, which
holds for all but forward KL, whose gradient is `p - q`.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Kind = Literal["forward", "reverse", "jsd"]


@dataclass(frozen=True)
class Divergence:
    """`forward`: KL(teacher, student). `reverse`: KL(student, teacher).

    `jsd`: `beta * KL(teacher, m) + (1 - beta) * KL(student, m)` with the mixture `m = beta * q + (1 - beta) * p`.
    """

    kind: Kind
    beta: float = 0.5

    def swapped(self) -> "Divergence":
        """The same number with student and teacher swapped."""
        other: dict[Kind, Kind] = {"forward": "reverse", "reverse": "forward", "jsd": "jsd"}
        return Divergence(other[self.kind], 1 - self.beta)

    @property
    def weighing(self) -> int:
        """Whose probabilities weigh a KL divergence: 0 the student's, 1 the teacher's."""
        return 1 if self.kind == "forward" else 0

    def of_stats(self, sum_exp: Tensor, cross: Tensor) -> Tensor | None:
        """A KL divergence from `PairStats` of the whole vocabulary; None for JSD, whose mixture needs both norms first.

        `sum q * (b - a)`, where `b - a` is what `cross` has summed up and a constant of the row.
        """
        if self.kind == "jsd":
            return None
        mine, others = sum_exp[self.weighing], sum_exp[1 - self.weighing]
        return cross / mine - mine.log() + others.log()

    def sums(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Of each row over the columns: `p * f` and `q * g` of JSD."""
        mixture = self._log_mixture(a, b)
        student = (1 - self.beta) * (a.exp() * (a - mixture)).sum(1)
        return student, self.beta * (b.exp() * (b - mixture)).sum(1)

    def student_grad(self, a: Tensor, b: Tensor, student_sum: Tensor) -> Tensor:
        """The gradient of each of the student's logits; `student_sum` is `sum p * f` over the whole vocabulary."""
        if self.kind == "forward":
            return a.exp() - b.exp()
        if self.kind == "reverse":
            return a.exp() * (a - b - student_sum[:, None])
        return a.exp() * ((1 - self.beta) * (a - self._log_mixture(a, b)) - student_sum[:, None])

    def _log_mixture(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.logaddexp(a + math.log(1 - self.beta), b + math.log(self.beta))
