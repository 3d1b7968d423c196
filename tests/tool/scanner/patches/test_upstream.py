"""What Megatron has by itself, told by the statements of a hunk; held against the releases themselves."""

import subprocess

import pytest
from checking import CORE, check_found, found_in
from downloads import unpacked

from mcore_unpatch.findings import Finding
from mcore_unpatch.megatron.versions import parse_version
from mcore_unpatch.scanner.judging import upstream

FILES = (
    *("models/gpt/gpt_model.py", "models/gpt/gpt_layer_specs.py", "transformer/transformer_config.py"),
    *("transformer/transformer_layer.py", "transformer/multi_token_prediction.py", "transformer/moe/router.py"),
    *("transformer/moe/moe_utils.py", "transformer/attention.py", "optimizer/distrib_optimizer.py", "utils.py"),
)


@pytest.fixture(scope="module")
def between_releases() -> str:
    """What changed in some files from 0.18.2 to 0.19.2, as one patch file."""
    said = []
    for name in FILES:
        old, new = (
            unpacked("megatron-core", release) / CORE.replace(".", "/") / name for release in ("0.18.2", "0.19.2")
        )
        command = ["git", "diff", "--no-index", "--no-color", str(old), str(new)]
        said.append(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    return "".join(said)


def judged(text: str, release: str) -> list[Finding]:
    return found_in({"a.patch": text}, target=parse_version(release))


class TestReleases:
    """The diff of two releases: the newer has all of it, the older nothing."""

    def test_the_newer_has_it(self, between_releases: str) -> None:
        findings = judged(between_releases, "0.19")
        having = [one for one in findings if one.verdict == "delete"]
        assert len(having) > len(findings) / 3  # the rest is cut at the edges of hunks, or too entangled
        said = {one.evidence for one in having if "comments" not in one.evidence}
        assert said == {
            "Megatron has what it adds, in the same place, since 0.19, and nothing of what it takes away.",
            "Megatron has the same since 0.19, and nothing of what it takes away.",
        }

    def test_the_older_has_nothing_of_it(self, between_releases: str) -> None:
        findings = judged(between_releases, "0.18")
        assert [one for one in findings if one.verdict == "delete" and "comments" not in one.evidence] == []
        assert [one for one in findings if one.breaks] == []

    def test_comments_alone_change_no_function(self, between_releases: str) -> None:
        findings = [one for one in judged(between_releases, "0.18") if "comments" in one.evidence]
        assert findings
        for one in findings:
            old, new = (upstream.definition(one.target, release) for release in ("0.18.2", "0.19.2"))
            assert old is None or old.kind != "function" or old == new

    def test_the_newer_no_longer_reads_so(self, between_releases: str) -> None:
        broken = [one for one in judged(between_releases, "0.19") if one.breaks]
        assert broken
        assert {one.breaks[0].rpartition(" ")[2] for one in broken} <= {"0.18.0", "0.18.2"}


def hunk(body: str, section: str = "def divide(numerator, denominator):", file: str = "megatron/core/utils.py") -> str:
    old = sum(not line.startswith("+") for line in body.splitlines())
    new = sum(not line.startswith("-") for line in body.splitlines())
    return f"--- a/{file}\n+++ b/{file}\n@@ -90,{old} +90,{new} @@ {section}\n{body}"


# Changes that are none -> the hunk.
COMMENTS = {
    "a comment": "     x = f()\n+    # why\n     y = g()\n",
    "behind code": "-    x = f()  # why\n+    x = f()\n     y = g()\n",
    "a blank line": "     x = f()\n+\n+    # -\n     y = g()\n",
    "a text": '     x = f()\n+    """What it is."""\n     y = g()\n',
    "within a call": "     x = f(\n-        a,  # why\n+        a,\n         b,\n",
}
# Changes that look like none.
CODE = {
    "a decorator": "     return x\n \n-@jit_fuser\n+\n def other(x):\n     return x\n",
    "a default": "     a: int,\n-    b: bool = False,\n+    b: bool = True,\n ) -> None:\n     x = f()\n",
    "a default of a whole head": " \n-def other(x, y=1):\n+def other(x, y=2):\n     return x\n",
    "an exception": "     try:\n         x = f()\n-    except ValueError:\n+    except KeyError:\n         y = g()\n",
    "a block": "     if x:\n         y = f()\n-    z = g()\n+        z = g()\n",
    "an else": "     if x:\n         y = f()\n+    else:\n+        pass\n     z = g()\n",
    "within a call": "     x = f(\n         a,\n+        b,\n         c,\n",
    "below an ellipsis": '     ...\n \n-def other(a):\n+def other(a, b):\n     """What\n     it is."""\n     ...\n',
    "before what may end a text": '     x = f"{y["a"]}"\n-    z = 1\n+    z = 2\n     """\n     w = 3\n',
    "behind what may begin a text": '     x = f"{y["a"]}"\n     """\n-    z = 1\n+    z = 2\n',
    "the order": "+    y = g()\n     x = f()\n-    y = g()\n     z = h()\n",
}


@pytest.mark.parametrize("body", COMMENTS.values(), ids=COMMENTS)
def test_comments_alone(body: str) -> None:
    finding = check_found({"a.patch": hunk(body)}, verdict="delete")
    assert "comments, docstrings or blank lines alone" in finding.evidence


@pytest.mark.parametrize("body", CODE.values(), ids=CODE)
def test_code(body: str) -> None:
    assert {finding.verdict for finding in found_in({"a.patch": hunk(body)})} == {"keep"}


class TestNames:
    """Fields and imports, told by their names and values."""

    FILE = "megatron/core/transformer/transformer_config.py"
    SECTION = "class MLATransformerConfig(TransformerConfig):"

    def test_a_field_that_megatron_has(self) -> None:
        text = hunk(
            "+    original_max_position_embeddings: int = 4096\n \n     beta_fast: float = 32\n",
            self.SECTION,
            self.FILE,
        )
        assert "since 0.14" in check_found({"a.patch": text}, verdict="delete").evidence
        assert judged(text, "0.13")[0].verdict == "steps"

    def test_with_another_value(self) -> None:
        text = hunk(
            "+    original_max_position_embeddings: int = 8192\n \n     beta_fast: float = 32\n",
            self.SECTION,
            self.FILE,
        )
        assert "since 0.14" not in check_found({"a.patch": text}).evidence

    def test_an_import(self) -> None:
        text = hunk(" import math\n+import warnings\n import time\n", "", "megatron/core/utils.py")
        assert check_found({"a.patch": text}, verdict="delete", target=f"{CORE}.utils")


class TestOwnCode:
    """What a patch file brings and Megatron does not have can stand elsewhere, unless it leads back to the module."""

    @pytest.mark.parametrize(
        ("code", "verdict"),
        [
            ("+def ours(x):\n+    return x\n", "steps"),
            ("+class Ours(Base):\n+    x = 1\n", "steps"),
            ("+def ours(x):\n+    global _KEPT\n+    _KEPT = x\n", "keep"),
            ("+@register\n+def ours(x):\n+    return x\n", "keep"),
            ("+def __getattr__(name):\n+    return name\n", "keep"),
            ("+def divide(x):\n+    return x\n", "keep"),
        ],
    )
    def test_added_to_a_module(self, code: str, verdict: str) -> None:
        check_found({"a.patch": hunk(f" x = 1\n \n{code}+\n y = 2\n", "")}, verdict=verdict)

    def test_where_it_is_used(self) -> None:
        text = hunk(" x = 1\n \n+def ours(x):\n+    return x\n+\n y = 2\n", "") + hunk(
            "     a = 1\n+    b = ours(a)\n     c = 2\n"
        )
        moved = next(one for one in found_in({"a.patch": text}) if one.verdict == "steps")
        step = "Move lines 6-7 into a module of your own, and import it from there where the patch uses it (line 14)."
        assert moved.steps == (step,)


def test_what_is_imported_from_elsewhere_is_not_read() -> None:
    section, file = "class TopKRouter(Router):", "megatron/core/transformer/moe/router.py"
    body = "     def __init__(self):\n         a = 1\n{0}+        self.replay = Replay(self)\n         b = 2\n"
    check_found({"a.patch": hunk(body.format(""), section, file)}, verdict="steps", answer="hunk-router-replay")
    imported = body.format("+        from ours.replay import Replay\n")
    check_found({"a.patch": hunk(imported, section, file)}, verdict="keep")


class TestPlaces:
    """A method out of sight is told by its statements or its parameters."""

    def test_gone(self) -> None:
        text = hunk("     x = f()\n+    y = g()\n", "def get_cpu_offload_context(x):", "megatron/core/transformer/a.py")
        assert check_found({"a.patch": text}, verdict="keep").breaks == ()

    def test_a_function_that_is_gone(self) -> None:
        file = "megatron/core/dist_checkpointing/strategies/common.py"
        text = hunk("     def load_common(self, a):\n+        b = a\n", "class TorchCommonLoadStrategy(A):", file)
        finding = check_found({"a.patch": text}, verdict="keep")
        assert finding.breaks == ("no longer applies to megatron-core 0.19: it does not exist after 0.16.1",)

    def test_parameters(self) -> None:
        body = "         runtime_gather_output=None,\n         extra_block_kwargs=None,\n"
        body += "         inference_context=None,\n+        mine=None,\n     ):\n"
        text = hunk(body, "class GPTModel(LanguageModule):", "megatron/core/models/gpt/gpt_model.py")
        assert check_found({"a.patch": text}).target.endswith("GPTModel._postprocess")

    def test_a_class_within_a_condition_ends_where_it_ends(self) -> None:
        body = " \n+    class Mine:\n+        def run(self):\n+            return 1\n+\n"
        body += "+    def ours():\n+        return Mine()\n+\n"
        found = found_in({"a.patch": hunk(body, "if HAVE_TE:", "megatron/core/extensions/transformer_engine.py")})
        assert [one.target.rpartition(".")[2] for one in found] == ["Mine", "ours"]


def test_a_patch_file_of_very_many_lines_is_not_read_but_listed() -> None:
    body = "     x = f()\n" + "+    y = g()\n" * 20_001
    assert check_found({"a.patch": hunk(body)}, target=f"{CORE}.utils", verdict="keep")
