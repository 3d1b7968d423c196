"""A CUDA build is no help to a test: it has what torch's CPU build has, in the test's own process and in its ranks."""

import pytest
import torch

from harness import run_on_ranks
from harness.cpu import LACKING, STAND_INS


def _refused(names: tuple[str, ...] = LACKING) -> list[str]:
    said = []
    for name in names:
        with pytest.raises(RuntimeError, match="Tried to instantiate dummy base class") as caught:
            getattr(torch.cuda, name)()
        said.append(str(caught.value).split()[-1])
    return said


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is a GPU, which tests for one use in this process")
def test_in_this_process() -> None:
    assert _refused() == list(LACKING)


def test_on_the_ranks() -> None:
    assert run_on_ranks("0.19.2", 1, _refused) == [list(LACKING)]


def test_no_function_with_a_device_is_forgotten() -> None:
    takes = {
        schema.name.removeprefix("aten::")
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::") and {"device", "pin_memory"} & {one.name for one in schema.arguments}
    }
    public = {
        (owner, name) for owner in (torch, torch.Tensor) for name in takes if name[0] != "_" and name in dir(owner)
    }
    assert len(public) > 40
    # The class, and two methods that are about one tensor's memory.
    assert public - set(STAND_INS) == {
        (torch, "Generator"),
        (torch.Tensor, "is_pinned"),
        (torch.Tensor, "pin_memory"),
    }


def _devices() -> list[str]:
    cuda = {"device": torch.device("cuda", 0), "pin_memory": True}
    made = [torch.zeros(2, **cuda), torch.tensor([1.0], **cuda), torch.ones(1).new_empty(3, **cuda)]
    made += [torch.ones_like(made[0], device="cuda"), made[0].to(device="cuda"), made[0].cuda(), made[0].double()]
    made += torch.nn.Linear(2, 2, device="cuda").cuda().parameters()
    assert made[0].type() == "torch.cuda.FloatTensor"
    assert made[0].type(torch.float64).dtype == torch.float64
    assert torch.ones(1, device="meta").is_meta
    return sorted({str(one.device) for one in made})


def test_cuda_means_the_cpu_on_the_ranks() -> None:
    assert run_on_ranks("0.19.2", 1, _devices) == [["cpu"]]
