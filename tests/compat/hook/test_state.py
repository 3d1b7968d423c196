"""What is set for one call, and what a handle undoes: without a model, in one process."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mcore_unpatch.compat import HookError
from mcore_unpatch.compat.hook.state import Handle, OneCallFields


def model_of() -> Any:
    return SimpleNamespace(config=SimpleNamespace(mtp_num_layers=2, other=1), mtp_process=True, run=print)


def test_fields_of_one_call_are_put_back_the_last_first() -> None:
    model, fields = model_of(), OneCallFields()
    config = model.config
    fields.begin()
    fields.set(model, "mtp_process", 1)
    fields.set(model, "mtp_process", 2)
    fields.configure(model, other=5)
    assert (model.mtp_process, model.config.other, model.config.mtp_num_layers) == (2, 5, 2)
    assert config.other == 1  # layers keep theirs
    with pytest.raises(TypeError, match=r"^SimpleNamespace\.run is a function; only data fields may be set\.$"):
        fields.set(model, "run", 1)
    fields.restore()
    assert (model.mtp_process, model.config) == (True, config)


def test_a_call_that_was_interrupted_is_put_back_by_the_next() -> None:
    model, fields = model_of(), OneCallFields()
    fields.begin()
    fields.set(model, "mtp_process", False)
    fields.begin()
    assert model.mtp_process is True


@pytest.mark.parametrize("given", [{}, {"compute_mtp_loss": True}])
def test_without_multi_token_prediction(given: dict[str, Any]) -> None:
    """By the argument where the model has one, and what the caller said of it stays; else by its fields."""
    model, fields, keywords = model_of(), OneCallFields(), dict(given)
    fields.leave_out_mtp(model, keywords, ["labels", "compute_mtp_loss"])
    assert (keywords, model.mtp_process) == ({"compute_mtp_loss": False, **given}, True)
    keywords = {}
    fields.leave_out_mtp(model, keywords, ["labels"])
    assert (keywords, model.mtp_process, model.config.mtp_num_layers) == ({}, False, None)


def in_a_thread(run: Callable[[], object], until: threading.Event) -> threading.Thread:
    begun = threading.Event()

    def work() -> None:
        run()
        begun.set()
        until.wait()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    begun.wait()
    return thread


def test_no_field_changes_while_another_thread_is_in_the_model() -> None:
    model, fields, leave = model_of(), OneCallFields(), threading.Event()
    other = in_a_thread(fields.begin, leave)
    fields.begin()
    with pytest.raises(HookError, match="another thread is in a forward of this model"):
        fields.set(model, "mtp_process", False)
    assert model.mtp_process is True
    leave.set()
    other.join()
    fields.begin()  # one that is gone is in nothing
    fields.set(model, "mtp_process", False)
    stranger = in_a_thread(fields.restore, leave)  # it is not in a call
    stranger.join()
    assert model.mtp_process is False


def test_a_handle_undoes_once_and_in_order() -> None:
    done: list[int] = []
    handle = Handle()
    handle.on_removal(lambda: done.append(1), lambda: done.append(2))
    handle.claim().claim()
    handle.release()
    assert done == []
    handle.release()
    handle.remove()
    assert done == [1, 2]
    with pytest.raises(HookError, match="this handle was removed, so nothing is installed any more; attach again"):
        handle.__enter__()
    with Handle() as other:
        other.on_removal(lambda: done.append(3))
    assert done == [1, 2, 3]
