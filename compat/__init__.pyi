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
    AttachmentError as AttachmentError,
    HookBypassedError as HookBypassedError,
    HookCall as HookCall,
    HookContext as HookContext,
    HookError as HookError,
    HookMissingError as HookMissingError,
    HookSwallowedError as HookSwallowedError,
    LegacyPatchError as LegacyPatchError,
    Logits as Logits,
    MissingContextError as MissingContextError,
    Outputs as Outputs,
    ProcessGroups as ProcessGroups,
    Processor as Processor,
    UnsupportedHeadError as UnsupportedHeadError,
    WrapperRefusesError as WrapperRefusesError,
    resolve_groups as resolve_groups,
)
from .hook.changed_heads import (
    ValueLayer as ValueLayer,
    add_value_head as add_value_head,
    detach_mtp_inputs as detach_mtp_inputs,
    fp32_logits as fp32_logits,
)
from .hook.find import (
    Handle as Handle,
    HookPath as HookPath,
    find_language_model as find_language_model,
    foreign_methods as foreign_methods,
)
from .hook.head import HeadOptions as HeadOptions
from .hook.hybrid import gpt_parameter_names as gpt_parameter_names
from .hook.processors import (
    Compose as Compose,
    DistillationLoss as DistillationLoss,
    Entropy as Entropy,
    HeadInputs as HeadInputs,
    LogProbs as LogProbs,
    LogProbsAndEntropy as LogProbsAndEntropy,
    LogProbsAt as LogProbsAt,
    SumPiSquared as SumPiSquared,
    TeacherStates as TeacherStates,
    TeacherTopK as TeacherTopK,
    TokenLoss as TokenLoss,
    TopKLogits as TopKLogits,
)
