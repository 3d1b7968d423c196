"""miles' log-prob and entropy functions for models that return `LazyLogits` (attach `DeferredHead`).

They have miles' names and arguments; real logits go to miles' own functions.
"""

from mcore_unpatch.compat.requirements import require_megatron

require_megatron(__name__)

from argparse import Namespace

from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat import slime
from mcore_unpatch.compat.logits.lazy import LazyLogits, real_logits_to

_HOME = "miles.backends.training_utils.loss_hub"
_TRUE_ON_POLICY = (
    "true_on_policy: SGLang's bits come from the log-softmax of whole 16-bit logits, which LazyLogits never build; do "
    "not attach DeferredHead to a model that is scored this way."
)


@real_logits_to(f"{_HOME}.math_utils")
def calculate_log_probs_and_entropy(
    logits: LazyLogits,
    tokens: Tensor,
    tp_group: ProcessGroup | None,
    with_entropy: bool = False,
    entropy_requires_grad: bool = True,
    chunk_size: int = -1,
    true_on_policy: bool = False,
    vocab_size: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Log-probs `[tokens, 1]` and entropy `[tokens]` of logits `[tokens, vocab / tp]`, from one pass.

    The group is the model's own, and the work is tiled over the vocabulary: `tp_group` and `chunk_size` change nothing;
    nor does `vocab_size`, which miles uses with `true_on_policy` alone.
    """
    if true_on_policy:
        raise NotImplementedError(_TRUE_ON_POLICY)
    return slime.calculate_log_probs_and_entropy(
        logits, tokens, tp_group, with_entropy, with_entropy_grad=entropy_requires_grad
    )


@real_logits_to(f"{_HOME}.logit_processors")
def get_log_probs_and_entropy(
    logits: LazyLogits,
    *,
    args: Namespace,
    unconcat_tokens: list[Tensor],
    total_lengths: list[int],
    response_lengths: list[int],
    with_entropy: bool = False,
    entropy_requires_grad: bool = True,
    non_loss_data: bool = True,
    max_seq_lens: list[int] | None = None,
) -> dict[str, list[Tensor]]:
    """`log_probs` and `entropy`: of each sample, the values of its response on this rank.

    From logits `[1, tokens, vocab / tp]` (`args.qkv_format` "thd") or `[b, s, vocab / tp]` ("bshd", with
    `max_seq_lens`). Rows of prompts and padding are not computed.
    """
    assert non_loss_data
    if args.true_on_policy_mode:
        raise NotImplementedError(_TRUE_ON_POLICY)
    padded = args.qkv_format != "thd"
    if padded and max_seq_lens is None:
        raise ValueError(f"max_seq_lens: expected the padded length of each sample for {args.qkv_format}, got None")
    temperature = args.rollout_temperature
    return slime.response_results(
        logits / float(temperature) if temperature > 0 else logits,
        slime.Samples(unconcat_tokens, total_lengths, response_lengths, max_seq_lens if padded else None),
        entropy=with_entropy,
        entropy_grad=entropy_requires_grad,
        allgather_cp=args.allgather_cp,
    )
