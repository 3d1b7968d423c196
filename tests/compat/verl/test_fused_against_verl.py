"""veRL's own fused forward and the shim's, on the same model and batch: log-probs, entropy, every gradient."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from downstream.comparing import assert_same, run
from downstream.verl import verl_files
from harness import on_ranks
from harness.models import Case
from harness.pool import RELEASES
from megatron.core import packed_seq_params as megatron_packed
from torch import Tensor

from mcore_unpatch.compat.verl import model_forward_fused as ours
from mcore_unpatch.compat.verl.batches import (
    Batch,
    batch_of,
    cp_group_of,
    next_in_sequence,
    packed_seq_params,
    plan_row,
)

LENGTHS = [11, 4, 16]
TEMPERATURE = 0.7
PADDED = [Case(batch=3), Case(batch=3, tied=True), Case(batch=3, cp=2)]
NEWEST = [(release, "0.9.1") for release in RELEASES]
OLDER = [("0.18.2", "0.7.1"), ("0.19.2", "0.8.0")]  # of Megatron and of veRL, each once
# Where Megatron's own numbers are others.
KEPT_NESTED = [Case(mup=True), Case(tp=2)]
KEPT = [Case(batch=3, mup=True), Case(batch=3, tp=2), Case(batch=3, tp=2, tied=True, mup=True)]


def padded_inputs(case: Case) -> dict[str, Any]:
    """A batch as veRL's actor has it: prompts padded on the left, labels and their mask aligned with the outputs."""
    generator = torch.Generator().manual_seed(11)
    ids = torch.randint(1, case.vocab, (len(LENGTHS), case.sequence), generator=generator)
    real = torch.arange(case.sequence) >= case.sequence - torch.tensor(LENGTHS)[:, None]
    mask = real.clone()
    mask[:, :-4] = False
    mask[:, -1] = False
    return {
        "input_ids": ids * real,
        "position_ids": (real.cumsum(-1) - 1).clamp(min=0),
        "attention_mask": real,
        "labels": (ids * real).roll(-1, -1),
        "labels_mask": mask,
        "temperature": TEMPERATURE,
        "multi_modal_inputs": {},
    }


def nested_inputs(case: Case) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(11)
    rows = [torch.randint(1, case.vocab, (length,), generator=generator) for length in LENGTHS]
    ids = torch.nested.nested_tensor(rows, layout=torch.jagged)
    common = {"multi_modal_inputs": {}, "temperature": TEMPERATURE, "calculate_entropy": True, "pad_token_id": 0}
    return {"input_ids": ids, "labels": ids.clone(), **common}


def but_last(results: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without the log-prob of each sequence's last token, which has no label."""
    ends = torch.tensor(LENGTHS).cumsum(0) - 1
    flat = results["log_probs"].values()
    kept = flat.new_ones(len(flat)).index_fill(0, ends, 0)
    return results | {"log_probs": flat * kept}


OLDER_PADDED = [(*pair, case) for pair in OLDER for case in (Case(batch=3), Case(batch=3, mtp=1), *KEPT)]


@pytest.mark.parametrize(
    ("release", "version", "case"),
    [*((*pair, case) for pair in NEWEST for case in (*PADDED, *KEPT)), *OLDER_PADDED],
    ids=str,
)
@on_ranks
def test_the_same_as_verl_for_padded_batches(case: Case, model: Any, folder: str) -> None:
    inputs = padded_inputs(case)
    with verl_files(folder) as files:
        theirs = files("model_forward_fused")
        theirs.patch_fused_forward(model)
        forward = theirs.fused_forward_model_gen()
        legacy = run(model, lambda: forward(model, **inputs))
        theirs.unpatch_fused_forward(model)
        vars(model).pop("forward", None)
    ours.patch_fused_forward(model)
    mine = run(model, lambda: ours.fused_forward_model_gen()(model, **inputs))
    assert_same(mine, legacy)
    padded = run(model, lambda: ours.fused_forward_model_gen()(model, **inputs, data_format="bshd"))
    assert_same(padded.over_ranks(), legacy.over_ranks())


@pytest.mark.parametrize(("release", "version"), OLDER)
@pytest.mark.parametrize("case", [Case(packed=True), Case(packed=True, mtp=1), Case(packed=True, tp=2)], ids=str)
@on_ranks
def test_the_same_as_a_model_that_verl_patched(case: Case, model: Any, inputs: Any, folder: str) -> None:
    """The patched model itself, called with one packed row: flat results, and with MTP layers no MTP loss."""

    def call() -> dict[str, Tensor]:
        out = model(**inputs, temperature=TEMPERATURE)
        return {"log_probs": out.log_probs, "entropy": out.entropy}

    with verl_files(folder) as files:
        theirs = files("model_forward_fused")
        theirs.patch_fused_forward(model)
        legacy = run(model, call)
        theirs.unpatch_fused_forward(model)
        vars(model).pop("forward", None)
    ours.patch_fused_forward(model)
    assert_same(run(model, call), legacy)
    assert not legacy.logged
    ours.patch_fused_forward(model, numbers="megatron")
    right = run(model, call)
    assert bool(right.logged) == bool(case.mtp)
    assert right.results["log_probs"].shape == inputs["labels"].shape


NESTED = [
    *((Case(), {}), (Case(tied=True), {"pad_to_length_bucket": 32}), (Case(cp=2), {"pad_to_length_bucket": 24})),
    *((case, {}) for case in KEPT_NESTED),
]
OLDER_NESTED = [(*pair, case, {}) for pair in OLDER for case in (Case(), Case(cp=2), *KEPT_NESTED)]


@pytest.mark.parametrize(
    ("release", "version", "case", "options"),
    [*((*pair, *row) for pair in NEWEST for row in NESTED), *OLDER_NESTED],
    ids=lambda value: str(value) or "default",
)
@on_ranks
def test_the_same_as_verl_for_nested_batches(case: Case, model: Any, folder: str, options: dict[str, Any]) -> None:
    inputs = nested_inputs(case) | options
    with verl_files(folder) as files:
        theirs = files("model_forward_fused")
        theirs.patch_fused_forward(model)
        name = "fused_forward_model_engine"
        make = getattr(theirs, name, None) or theirs.fused_forward_no_padding_gen
        legacy = run(model, lambda: make()(model, **inputs))
        known = run(model, lambda: but_last(make()(model, **inputs)))
        theirs.unpatch_fused_forward(model)
        vars(model).pop("forward", None)
    forward = ours.fused_forward_model_engine()
    ours.patch_fused_forward(model)
    if case.cp > 1 and "pad_to_length_bucket" in options:  # of 0.9, whose padding gives the last token another label
        assert_same(run(model, lambda: but_last(forward(model, **inputs))), known)
    else:
        assert_same(run(model, lambda: forward(model, **inputs)), legacy)
    assert forward(model, **inputs)["log_probs"].unbind()[0][-1] < 0  # what follows in the row, or the first token
    padded = run(model, lambda: but_last(forward(model, **inputs, data_format="bshd")))
    assert_same(padded.over_ranks(), known.over_ranks())
    if case not in KEPT_NESTED:
        ours.patch_fused_forward(model, numbers="megatron")
        assert_same(run(model, lambda: but_last(forward(model, **inputs))), known)
        assert forward(model, **inputs)["log_probs"].unbind()[0][-1] == 0


@dataclass
class WithPartitionMode(megatron_packed.PackedSeqParams):
    """The field that later megatron-core releases have and these two do not."""

    cp_partition_mode: str = "zigzag"


@pytest.mark.parametrize("fp8", [None, "hybrid"], ids=["bf16", "fp8"])
@pytest.mark.parametrize("bucket", [None, 20], ids=["no bucket", "bucket"])
@pytest.mark.parametrize(
    ("case", "layout"),
    [
        (Case(), "zigzag"),
        (Case(tp=2), "zigzag"),
        (Case(cp=2), "zigzag"),
        (Case(tp=2, cp=2), "zigzag"),
        (Case(cp=2), "contiguous"),
        (Case(tp=2, cp=2), "contiguous"),
    ],
    ids=str,
)
@on_ranks(release="0.19.2")
def test_rows_are_laid_out_as_verl_lays_them(
    case: Case, verl_091: str, layout: str, bucket: int | None, fp8: str | None
) -> None:
    ids = nested_inputs(case)["input_ids"]
    with verl_files(verl_091) as files:
        util = files("util")
        if layout == "contiguous":
            util.PackedSeqParams, util._PACKED_SEQ_PARAMS_HAS_CP_PARTITION_MODE = WithPartitionMode, True
        options = {"cp_layout": layout, "pad_to_length_bucket": bucket, "use_fp8_padding": fp8 is not None}
        row, params, _ = util.preprocess_thd_engine(ids, **options)
        rolled, _, _ = util.preprocess_thd_engine(ids, need_roll=True, **options)
        back = util.postprocess_thd_engine(row.float(), params, ids, len(LENGTHS), cp_layout=layout)
    config = type("Config", (), {"fp8": fp8})
    mine = plan_row(LENGTHS, config, cp_group_of(None), cp_layout=layout, pad_to_length_bucket=bucket)
    assert torch.equal(mine.bounds, params.cu_seqlens_q_padded)
    if layout == "contiguous":
        with pytest.raises(ValueError, match="cp_partition_mode"):
            packed_seq_params(mine, ids.device)
        shape = (1, mine.tokens)
        packer = Batch(mine, cp_group_of(None), shape, {}, ids.offsets(), None)
    else:
        packer = batch = batch_of(ids, None, config, cp_layout=layout, pad_to_length_bucket=bucket)
        assert batch.arguments["packed_seq_params"].max_seqlen_q == params.max_seqlen_q
    assert torch.equal(packer.pack(ids), row)
    unpacked = packer.unpack(row.float())
    assert torch.equal(unpacked.values(), back.values())
    labels = packer.pack(next_in_sequence(ids, -100), fill=-100)
    known = labels != -100
    assert torch.equal(labels[known], rolled[known])


@pytest.mark.parametrize("version", ["0.5.0", "0.6.1", "0.7.1", "0.8.0", "0.9.1"])
@pytest.mark.parametrize("case", [Case(), Case(tp=2, cp=2)], ids=str)
@on_ranks(release="0.19.2")
def test_padded_batches_are_packed_as_every_release_packs_them(case: Case, folder: str) -> None:
    inputs = padded_inputs(case)
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    with verl_files(folder) as files:
        row, params = files("util").preprocess_packed_seqs(ids, mask)
        back = files("util").postprocess_packed_seqs(row.float(), params, mask, *ids.shape)
    batch = batch_of(ids, mask, type("Config", (), {"fp8": None}))
    assert torch.equal(batch.pack(ids), row)
    assert torch.equal(batch.arguments["packed_seq_params"].cu_seqlens_q_padded, params.cu_seqlens_q_padded)
    assert torch.equal(batch.unpack(row.float()), back)
