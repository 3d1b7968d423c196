"""What a condition is worth on each release: one small question each, answered exactly, or said to be open (`?`)."""

import textwrap
from pathlib import Path

from checking import found_in, scan_source
from forms import check_forms

HEAD = """\
import importlib, inspect, sys
import importlib.metadata
import importlib.util
import megatron.core
import importlib_metadata
import torch
from packaging.version import Version
from pkg_resources import parse_version
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.transformer_config import TransformerConfig
def f(self, *args, **kwargs): return self
V = megatron.core.__version__
N = tuple(int(x) for x in V.split(".")[:2])
M = int(V.split(".")[1])
def plain(a, b=2, /, c=3, *rest, d, e=5, **others): return None
def nothing(): return
def kept(than="0.16", *, of=V): return of >= than
def spread(**options): return V >= "0.16"
def first(a, b): return a
def tries():
    try:
        return V >= "0.16"
    except Exception:
        return None
def either(flag):
    if flag:
        return V >= "0.16"
    return V >= "0.16"
def differ(flag):
    if flag:
        return V >= "0.16"
    return V >= "0.15"
def renamed(than):
    low = than
    return V >= low
def defaulted(than=None):
    if than is None:
        than = "0.16"
    return V >= than
def branched(flag, than="0.16"):
    low = than if flag else "0.14"
    high = low
    return V >= high
def falls():
    try:
        low = "0.16"
    except Exception:
        return None
    return V >= low
def outer(than):
    def inner():
        return V >= than
    return inner()
class Ask:
    def recent(self, than):
        return V >= than
    @staticmethod
    def plain(than):
        return V >= than
"""
CONDITIONS = {
    "any?": """
        renamed(use_x)
        renamed()
        defaulted(use_x)
        branched(use_x)
        outer("0.16")
        +M >= 16
        M >= 16 or use_x
        (1 if use_x else True) == 1
        M - 1 >= 15
        [0] + [M] >= [0, 16]
        "0.16" + 1
        getattr(TopKRouter, "is_aux_loss_enabled", 3) == 3
        GPTModel == 3
        V == GPTModel
        V in (use_x, "0.16.0")
        V in use_x
        M < "16"
        N[:use_x] >= (0, 16)
        N[::2] >= (0, 16)
        N[use_x] >= 16
        N[7] >= 16
        {"0": M}["0"]
        GPTModel[0]
        [x for x in V.split(".") if x][1] == "12"
        [x for x, y in V.split(".")][1] == "12"
        [x for x in V for y in V][0] == "0"
        [x for x in M] == []
        [use_x for x in V.split(".")] == []
        V.frobnicate
        f"{V}" >= "0.16"
        map(int) or M >= 16
        map(lambda x: x, V.split("."))
        map(f, V.split("."))
        map(int, M) == ()
        map(int, V) == ()
        tuple(map(int, V.split(".")[:2], V)) >= (0, 16)
        int(V.split(".")[1], base=10) >= 16
        int(use_x) >= 16
        int(*N) >= 16
        len(f) == 3
        max(*N, 0) >= 16
        frobnicate(V) >= "0.16"
        print(V)
        V.split(".", maxsplit=1)[0] == "0"
        V.split(use_x)[0] == "0"
        V.title() == "0.16.0"
        N.index(16)
        {"a": 1}.get("a")
        inspect.signature(GPTModel.forward).parameters.get()
        inspect.signature(GPTModel.forward).parameters.get(use_x)
        inspect.signature(GPTModel.forward).parameters.items()
        inspect.signature(GPTModel.forward).return_annotation
        inspect.signature(GPTModel.forward).bind()
        inspect.signature()
        inspect.signature(use_x)
        inspect.signature(torch.nn.Linear)
        inspect.signature(megatron.core)
        plain.__code__.co_varnames
        kept(of=use_x)
        kept(**use_x)
        first(*N) >= 16
        Ask.recent(None, "0.16")
        Ask.plain("0.16")
        Ask().plain("0.16")
        Version("x y") >= Version("0.16")
        Version(use_x) >= Version("0.16")
        Version(M) >= Version("0.16")
        Version() >= Version("0.16")
        Version(V).local
        importlib.metadata.version("torch") >= "0.16"
        importlib.metadata.version() >= "0.16"
        importlib.import_module("megatron.core").__version__ >= "0.16"
        megatron.core.package_info.frob
        torch.version_info >= (3, 9)
        GPTModel.of_no_release
        GPTModel().of_no_release
        GPTModel.forward()
        use_x.y
        use_x[0].y
        use_x(3)
        (lambda: V)() >= "0.16"
    """,
    ">=0.16.0": """
        spread(**{"x": 1})
        falls()
        renamed("0.16")
        renamed(than="0.16")
        renamed("0.16") and renamed("0.13")
        branched(True)
        float(V[:4]) >= 0.16
        min(M, 99) >= 16
        list(N) >= [0, 16]
        bool(M >= 16) is True
        any((M >= 16, False))
        tuple(list(N)) >= (0, 16)
        "padding_mask" in inspect.getargspec(GPTModel.forward).args
        importlib_metadata.version("megatron-core") >= "0.16"
        Version(V).base_version >= "0.16"
        Version(V).minor >= 16
        Version(V).release >= (0, 16)
        parse_version(V) >= parse_version("0.16")
        -M <= -16
        (0 or M) >= 16
        ("a" if use_x else "a") == "a" and M >= 16
        ("a" if M >= 16 else "b") == "a"
        M + 1 >= 17
        V + "x" >= "0.16.0x"
        N + (0,) >= (0, 16, 0)
        M is not None and M >= 16
        None != M and M >= 16
        None == None and M >= 16
        megatron.core is not None and M >= 16
        None != GPTModel and M >= 16
        N[0:2] >= (0, 16)
        N[1] >= 16
        N[-1] >= 16
        all(x >= 0 for x in N) and M >= 16
        any(int(x) >= 16 for x in V.split(".")[1:2])
        (n := M) >= 16
        len(V.split(".")) == 3 and M >= 16
        max(N) >= 16
        sorted(N)[-1] >= 16
        V.split(".", 1)[1] >= "16"
        inspect.signature(GPTModel.forward).parameters.get("padding_mask")
        "c" in inspect.signature(plain).parameters and M >= 16
        "rest" in inspect.signature(plain).parameters and M >= 16
        "others" in inspect.signature(plain).parameters and M >= 16
        "a" in inspect.signature(plain).parameters and M >= 16
        "d" in inspect.signature(plain).parameters and M >= 16
        "self" in inspect.signature(GPTModel.forward).parameters and M >= 16
        "config" in inspect.signature(GPTModel).parameters and M >= 16
        "padding_mask" in inspect.getfullargspec(GPTModel.forward).kwonlyargs
        nothing() is None and M >= 16
        kept()
        spread(x=1)
        first(M, 0) >= 16
        first(a=M, b=0) >= 16
        tries()
        either(use_x)
        Ask().recent("0.16")
        Version(V).public >= "0.16"
        Version(V).major == 0 and M >= 16
        importlib.metadata.version("Megatron_Core") >= "0.16"
        importlib.util.find_spec("megatron.core.transformer.moe.router_replay")
        importlib.util.find_spec("megatron.core.transformer.moe.router_replay") is not None
        megatron.core.package_info.MAJOR == 0 and M >= 16
    """,
    "any": """
        (M and "x") == "x"
        getattr(TopKRouter, "is_aux_loss_enabled", None) is getattr(TopKRouter, "is_aux_loss_enabled", None)
        getattr(TopKRouter, use_x, None) is None
        getattr(use_x, "is_aux_loss_enabled", None) is None
        getattr(V, "is_aux_loss_enabled", None) is None
        getattr(megatron.core, "of_no_release", None) is None
        hasattr(TopKRouter)
        hasattr(TopKRouter, "is_aux_loss_enabled", 3)
        hasattr(TopKRouter, use_x)
        hasattr(use_x, "is_aux_loss_enabled")
        hasattr(V, "is_aux_loss_enabled")
        hasattr(f, "is_aux_loss_enabled")
        hasattr(GPTModel.forward, "mine")
        getattr(TopKRouter)
        getattr()
        GPTModel.forward.__code__
        GPTModel.forward.co_varnames
        kept(of="0.17")
        first() is None
        importlib.util.find_spec("torch") is None
        importlib.util.find_spec("transformer_engine") is None
        importlib.util.find_spec(use_x) is None
        GPTModel(use_x) is None
    """,
    "none": """
        M >= 16 == True
        M is None
        None is M
        megatron.core is None
        GPTModel == None
        "x" in inspect.signature(plain).parameters
        "self" in inspect.signature(Ask().recent).parameters
        first(b=M, a=0) >= 16
    """,
    "<=0.12.3": """
        frozenset((M,)) == {12}
        set((M,)) == {12}
        str(M) == "12"
        (M < 16 and M) == 12
        V[2:4] == "12"
        [x for x in V.split(".")][1] == "12"
        [[int(x) + y for x in ("1",)] for y in N] == [[1], [13]]
        tuple(map(str, N)) == ("0", "12")
    """,
    "<=0.13.1": """
        getattr(TopKRouter, "is_aux_loss_enabled", None) is None
        None is getattr(TopKRouter, "is_aux_loss_enabled", None)
        getattr(TopKRouter, "is_aux_loss_enabled", None) == None
        M in {12, 13}
        {12, 13}.issuperset({M})
    """,
    ">=0.16.0?": """
        M >= 16 and use_x
        use_x and M >= 16
        (use_x and M >= 16) or M >= 18
        ("a" if use_x else "b") == "a" and M >= 16
    """,
    ">=0.14.0": """
        branched(False)
        branched(flag=False, than="0.18")
        branched(use_x, "0.14")
        getattr(TopKRouter, "is_aux_loss_enabled", None) is not None
        getattr(TopKRouter, "is_aux_loss_enabled", None) != None
        M not in [12, 13]
    """,
    ">=0.13.0?": """
        13 <= M <= use_x
        getattr(TopKRouter, "is_aux_loss_enabled", M) == 13
    """,
    "==0.12.3 or ==0.15.3": """
        Version(V).micro == 3
        megatron.core.package_info.PATCH == 3
    """,
    "<=0.15.3": """
        not M >= 16
    """,
    "<=0.17.1?": """
        (use_x or M >= 16) and M < 18
    """,
    ">=0.16.0,<=0.16.1": """
        (M or use_x) == 16
    """,
    ">=0.13.0,<=0.15.3": """
        renamed("0.13") and not renamed("0.16")
        13 <= M < 16
    """,
    "<=0.12.3?": """
        use_x < M < 13
    """,
    ">=0.14.0?": """
        getattr(TopKRouter, "is_aux_loss_enabled", None) is f
    """,
    ">=0.15.0": """
        hasattr(TransformerConfig, "cuda_graph_impl")
    """,
    ">0.19.2?": """
        "self" in inspect.signature(GPTModel).parameters
    """,
    ">=0.13.0": """
        defaulted("0.13")
        branched(True, "0.13")
        kept("0.13")
    """,
    ">=0.15.0?": """
        differ(use_x)
    """,
}


def test_what_conditions_are_worth() -> None:
    """All in one file, each around a patch of its own."""
    source, asked = HEAD, {}
    for answer, conditions in CONDITIONS.items():
        for condition in textwrap.dedent(conditions).strip().splitlines():
            source += f"def case_{len(asked)}(use_x):\n    if {condition}:\n        GPTModel.forward = f\n"
            asked[source.count("\n")] = f"{condition}: {answer}"
    lives = {finding.line: finding.live for finding in found_in(source)}
    answers = {line: f"{live}{'?' if live.depends else ''}" for line, live in lives.items()}
    assert {line: f"{said.rpartition(': ')[0]}: {answers[line]}" for line, said in asked.items()} == asked


# Bodies of functions with a patch in their middle, each with the releases on which it runs.
BODIES = Path(__file__).parent / "bodies.txt"
AROUND = f"""{HEAD}
import os
from typing import TYPE_CHECKING
class Holder:
    def __init__(self): self.model = GPTModel()
SET = M >= 16
def put():
    global GIVEN
    GIVEN = M >= 16
def case(use_x):
"""
OTHER = """\
import megatron.core
NEW = megatron.core.__version__ >= "0.16"
def recent(than="0.16"): return megatron.core.__version__ >= than
"""


def test_every_body_runs_as_somebody_read() -> None:
    check_forms(BODIES, answers_to)


def answers_to(bodies: list[str]) -> list[str]:
    """What a scan says of the patch in each body, in a file of its own."""
    files = {"other.py": OTHER}
    for number, body in enumerate(bodies):
        lines = body.replace("PATCH", "GPTModel.forward = f").splitlines()
        files[f"m{number:03}.py"] = AROUND + "".join(f"    {line}\n" for line in lines)
    report = scan_source(files)
    live = {finding.path: finding.live for finding in (*report.findings, *report.done)}
    return [f" {live[path]}{'?' if live[path].depends else ''}" for path in sorted(files) if path != "other.py"]
