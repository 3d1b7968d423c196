# The public names of mcore_unpatch.compat, all of them: `__init__.py` reads this list, and so do type checkers.
from .fused_head.linear_kl import linear_kl as linear_kl
from .fused_head.linear_logprob import (
    LogprobOutput as LogprobOutput,
    linear_logprob as linear_logprob,
    vocab_pass as vocab_pass,
)
from .fused_head.plan import VocabOutput as VocabOutput
from .fused_head.settings import LogprobOptions as LogprobOptions
from .hook.attach import (
    attach as attach,
    call_with_processor as call_with_processor,
    provide_hook as provide_hook,
    schedule_plan_with_processor as schedule_plan_with_processor,
)
from .hook.call import (
    HookCall as HookCall,
    HookContext as HookContext,
    Outputs as Outputs,
    ProcessGroups as ProcessGroups,
    Processor as Processor,
    resolve_groups as resolve_groups,
)
from .hook.changed_heads import (
    ValueLayer as ValueLayer,
    add_value_head as add_value_head,
    detach_mtp_inputs as detach_mtp_inputs,
    fp32_logits as fp32_logits,
)
from .hook.distillation import (
    DistillationLoss as DistillationLoss,
    TeacherStates as TeacherStates,
    TeacherTopK as TeacherTopK,
)
from .hook.find import (
    HookPath as HookPath,
    find_language_model as find_language_model,
    foreign_methods as foreign_methods,
)
from .hook.head import gather_hidden as gather_hidden
from .hook.processors import (
    AsTuple as AsTuple,
    Compose as Compose,
    Entropy as Entropy,
    HeadInputs as HeadInputs,
    Logits as Logits,
    LogitStats as LogitStats,
    LogProbs as LogProbs,
    LogProbsAndEntropy as LogProbsAndEntropy,
    LogProbsAt as LogProbsAt,
    SelectedTokenCrossEntropy as SelectedTokenCrossEntropy,
    SumPiSquared as SumPiSquared,
    TokenLoss as TokenLoss,
    TopKLogits as TopKLogits,
)
from .hook.state import (
    AttachmentError as AttachmentError,
    Handle as Handle,
    HookBypassedError as HookBypassedError,
    HookError as HookError,
    HookMissingError as HookMissingError,
    HookSwallowedError as HookSwallowedError,
    LegacyPatchError as LegacyPatchError,
    MissingContextError as MissingContextError,
    UnsupportedHeadError as UnsupportedHeadError,
    WrapperRefusesError as WrapperRefusesError,
)
from .names import gpt_parameter_names as gpt_parameter_names
from .packing.gather import (
    broadcast_from_last_stage as broadcast_from_last_stage,
    gather_sequence as gather_sequence,
    gather_shares as gather_shares,
    next_token_labels as next_token_labels,
    sum_over_ranks as sum_over_ranks,
    zigzag_index as zigzag_index,
    zigzag_merge as zigzag_merge,
    zigzag_split as zigzag_split,
)
from .packing.layout import (
    PackedLayout as PackedLayout,
    Packer as Packer,
    mean_per_sequence as mean_per_sequence,
    pack_nested as pack_nested,
    pack_padded as pack_padded,
    plan_packing as plan_packing,
    sum_per_sequence as sum_per_sequence,
)
