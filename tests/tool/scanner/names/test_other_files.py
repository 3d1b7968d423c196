"""What is patched is followed through other files of the repository."""

import pytest
from checking import CORE, GPT, check_found, check_noop


class TestOtherFilesOfTheRepository:
    PATCH = "def fast(self): ...\nGPTModel.forward = fast\n"
    IMPORT = "from megatron.core.models.gpt import GPTModel\n"

    def test_absolute_import(self) -> None:
        check_found(
            {"names.py": self.IMPORT, "patches.py": "from names import GPTModel\n" + self.PATCH},
            target=f"{GPT}.forward",
        )

    def test_relative_import(self) -> None:
        check_found(
            {
                "pkg/__init__.py": "",
                "pkg/names.py": self.IMPORT,
                "pkg/patches.py": "from .names import GPTModel\n" + self.PATCH,
            },
            target=f"{GPT}.forward",
            path="pkg/patches.py",
        )

    def test_relative_import_from_above(self) -> None:
        check_found(
            {
                "pkg/__init__.py": "",
                "pkg/names.py": self.IMPORT,
                "pkg/deep/__init__.py": "",
                "pkg/deep/patches.py": "from ..names import GPTModel\n" + self.PATCH,
            },
            target=f"{GPT}.forward",
        )

    def test_relative_import_of_a_module(self) -> None:
        check_found(
            {
                "pkg/__init__.py": "",
                "pkg/names.py": self.IMPORT,
                "pkg/patches.py": "from . import names\ndef fast(self): ...\nnames.GPTModel.forward = fast\n",
            },
            target=f"{GPT}.forward",
        )

    def test_module_by_its_dotted_name(self) -> None:
        check_found(
            {
                "pkg/__init__.py": "",
                "pkg/names.py": self.IMPORT,
                "run.py": "import pkg.names\ndef fast(self): ...\npkg.names.GPTModel.forward = fast\n",
            },
            target=f"{GPT}.forward",
            path="run.py",
        )

    def test_through_the_package(self) -> None:
        check_found(
            {
                "pkg/__init__.py": "from pkg.names import GPTModel\n",
                "pkg/names.py": self.IMPORT,
                "run.py": "from pkg import GPTModel\n" + self.PATCH,
            },
            target=f"{GPT}.forward",
        )

    def test_a_chain_with_another_name_at_each_step(self) -> None:
        check_found(
            {
                "a.py": "from megatron.core.models.gpt import GPTModel as A\n",
                "b.py": "from a import A as B\n",
                "c.py": "from b import B\nC = B\n",
                "patches.py": "from c import C\ndef fast(self): ...\nC.forward = fast\n",
            },
            target=f"{GPT}.forward",
        )

    def test_star_imports(self) -> None:
        check_found(
            {
                "a.py": self.IMPORT,
                "b.py": "from a import *\n",
                "patches.py": "from b import *\n" + self.PATCH,
            },
            target=f"{GPT}.forward",
        )

    def test_a_megatron_module_re_exported(self) -> None:
        check_found(
            {
                "pkg/__init__.py": "from megatron.core import parallel_state as mpu\n",
                "patches.py": "from pkg import mpu\nmpu.get_tensor_model_parallel_rank = lambda: 0\n",
            },
            target=f"{CORE}.parallel_state.get_tensor_model_parallel_rank",
        )

    def test_an_instance_made_elsewhere(self) -> None:
        check_found(
            {
                "build.py": self.IMPORT + "def build(config) -> GPTModel:\n    return GPTModel(config)\n",
                "patches.py": "from build import build\n"
                "def patch(config, fast):\n"
                "    model = build(config)\n"
                "    model.forward = fast\n",
            },
            target=f"{GPT}.forward",
            path="patches.py",
        )

    def test_src_layout(self) -> None:
        check_found(
            {
                "src/pkg/__init__.py": "",
                "src/pkg/names.py": self.IMPORT,
                "src/pkg/patches.py": "from pkg.names import GPTModel\n" + self.PATCH,
            },
            target=f"{GPT}.forward",
        )

    def test_src_layout_from_a_script_beside_it(self) -> None:
        check_found(
            {
                "src/pkg/__init__.py": "",
                "src/pkg/names.py": self.IMPORT,
                "scripts/run.py": "from pkg.names import GPTModel\n" + self.PATCH,
            },
            target=f"{GPT}.forward",
            path="scripts/run.py",
        )

    def test_import_cycle(self) -> None:
        check_found(
            {
                "a.py": "from b import x\nfrom megatron.core.models.gpt import GPTModel\n",
                "b.py": "from a import GPTModel\nx = 1\n" + self.PATCH,
            },
            target=f"{GPT}.forward",
            path="b.py",
        )

    def test_a_file_that_imports_itself_in_a_circle_of_names(self) -> None:
        check_noop(
            {
                "a.py": "from b import X\nX.forward = print\nimport megatron\n",
                "b.py": "from a import X\nimport megatron\n",
            }
        )

    def test_helper_in_another_file_that_patches_what_it_is_given(self) -> None:
        check_found(
            {
                "helper.py": "def override(owner, name, fn):\n    setattr(owner, name, fn)\n",
                "patches.py": "from helper import override\n" + self.IMPORT + "override(GPTModel, 'forward', print)\n",
            },
            target=f"{GPT}.forward",
            path="patches.py",
        )


class TestHelpersThatPutTheirOwnInPlace:
    """The helper's file has no word of Megatron; whoever calls it makes the patch."""

    OWN = "import types\ndef fwd(self, x): return x\n"
    RUN = "from megatron.core.transformer.mlp import MLP\nfrom patches import put\n"

    @pytest.mark.parametrize(
        "helper",
        [
            "def put(m): m.forward = fwd",
            "def put(m): m.forward = types.MethodType(fwd, m)",
            "def put(m):\n    old = m.forward\n    def inner(*a): return old(*a)\n    m.forward = inner",
        ],
    )
    @pytest.mark.parametrize("call", ["put(MLP)", "mlp = MLP(1, 2)\nput(mlp)", "def go(m: MLP):\n    put(m)"])
    def test_found(self, helper: str, call: str) -> None:
        target = f"{CORE}.transformer.mlp.MLP.forward"
        files = {"patches.py": f"{self.OWN}{helper}\n", "run.py": f"{self.RUN}{call}\n"}
        check_found(files, target=target, path="run.py", confidence="certain")

    def test_another_name_of_megatron(self) -> None:
        helper = f"{self.OWN}def put(r): r.routing = fwd\n"
        run = "from megatron.core.transformer.moe.router import TopKRouter\nfrom patches import put\nput(TopKRouter)\n"
        check_found({"patches.py": helper, "run.py": run}, target=f"{CORE}.transformer.moe.router.TopKRouter.routing")

    @pytest.mark.parametrize(
        "helper", ["def put(m): m.mine = fwd", "def put(m): m.forward = 1", "def put(m): return m.forward == fwd"]
    )
    def test_not_found(self, helper: str) -> None:
        check_noop({"patches.py": f"{self.OWN}{helper}\n", "run.py": f"{self.RUN}put(MLP)\n"})

    def test_one_s_own_class(self) -> None:
        run = self.RUN + "class A:\n    def forward(self): ...\nput(A)\n"
        check_noop({"patches.py": f"{self.OWN}def put(m): m.forward = fwd\n", "run.py": run})


class TestPackagesAsPythonFindsThem:
    NAMES = "from megatron.core.models.gpt import GPTModel\n"

    @pytest.mark.parametrize(
        "source",
        ["from . import names\nnames.GPTModel.forward = print\n", "import ns.names as n\nn.GPTModel.forward = f\n"],
    )
    def test_a_folder_without_init(self, source: str) -> None:
        check_found({"ns/names.py": self.NAMES, "ns/patches.py": source}, target=f"{GPT}.forward")

    def test_a_folder_without_init_by_its_dotted_name(self) -> None:
        source = "import ns.names\nns.names.GPTModel.forward = f\n"
        check_found({"ns/names.py": self.NAMES, "run.py": source}, target=f"{GPT}.forward")

    def test_a_package_hides_a_module(self) -> None:
        source = "from h import GPTModel\nGPTModel.forward = f\n"
        check_found({"h.py": "", "h/__init__.py": self.NAMES, "run.py": source}, target=f"{GPT}.forward")
        check_noop({"h.py": self.NAMES, "h/__init__.py": "", "run.py": source})
