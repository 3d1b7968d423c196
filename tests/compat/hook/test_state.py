"""What is set for one call, and what a handle undoes: without a model, in one process."""

from types import SimpleNamespace
from typing import Any

import pytest

from mcore_unpatch.compat.hook.find import OneCallFields


def model_of() -> Any:
    return SimpleNamespace(config=SimpleNamespace(mtp_num_layers=2, other=1), mtp_process=True, run=print)


def test_fields_of_one_call_are_put_back_the_last_first() -> None:
    model, fields = model_of(), OneCallFields()
    config = model.config
    fields.begin()
    fields.set(model, "mtp_process", 1)
    fields.set(model, "mtp_process", 2)
    fields.configure(model, "other", 5)
    assert (model.mtp_process, model.config.other, model.config.mtp_num_layers) == (2, 5, 2)
    assert config.other == 1  # layers keep theirs
    fields.restore()
    assert (model.mtp_process, model.config) == (True, config)


@pytest.mark.parametrize("given", [{}, {"compute_mtp_loss": True}])
def test_without_multi_token_prediction(given: dict[str, Any]) -> None:
    """By the argument where the model has one, and what the caller said of it stays; else by its fields."""
    model, fields, keywords = model_of(), OneCallFields(), dict(given)
    fields.leave_out_mtp(model, keywords, ["labels", "compute_mtp_loss"])
    assert (keywords, model.mtp_process) == ({"compute_mtp_loss": False, **given}, True)
    keywords = {}
    fields.leave_out_mtp(model, keywords, ["labels"])
    assert (keywords, model.mtp_process, model.config.mtp_num_layers) == ({}, False, None)
