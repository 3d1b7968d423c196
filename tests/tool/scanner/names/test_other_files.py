"""What is patched is followed through other files of the repository."""

import pytest
from checking import GPT, check_found, check_noop


class TestOtherFilesOfTheRepository:
    PATCH = "def fast(self): ...\nGPTModel.forward = fast\n"
    IMPORT = "from megatron.core.models.gpt import GPTModel\n"

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

    def test_a_file_that_imports_itself_in_a_circle_of_names(self) -> None:
        check_noop(
            {
                "a.py": "from b import X\nX.forward = print\nimport megatron\n",
                "b.py": "from a import X\nimport megatron\n",
            }
        )


class TestHelpersThatPutTheirOwnInPlace:
    """The helper's file has no word of Megatron; whoever calls it makes the patch."""

    OWN = "import types\ndef fwd(self, x): return x\n"
    RUN = "from megatron.core.transformer.mlp import MLP\nfrom patches import put\n"

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
