from nemo_rl.distributed.model_utils import distributed_vocab_topk
from verl.models.mcore.util import preprocess_packed_seqs


def run(logits):
    return distributed_vocab_topk(preprocess_packed_seqs(logits))
