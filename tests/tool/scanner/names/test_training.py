"""`megatron.training` is a part of the megatron-core distribution since 0.17: its names are Megatron's too."""

import pytest
from checking import check_found, check_noop, with_mocks

TRAINING = "megatron.training"
FORMS = {
    "a name of a module": "from megatron.training import training\ntraining.load_checkpoint = print\n",
    "by its whole path": "import megatron.training.training\nmegatron.training.training.load_checkpoint = print\n",
    "an alias": "import megatron.training.training as t\nt.load_checkpoint = print\n",
    "setattr": "from megatron.training import training\nsetattr(training, 'load_checkpoint', print)\n",
    "a registry": "def register(name, function): ...\nregister('megatron.training.training.load_checkpoint', print)\n",
    "sys.modules": "import sys, megatron\nsys.modules['megatron.training.training'].load_checkpoint = print\n",
}


@pytest.mark.parametrize("source", FORMS.values(), ids=FORMS)
def test_found(source: str) -> None:
    check_found(source, target=f"{TRAINING}.training.load_checkpoint")


def test_a_table_of_names() -> None:
    source = "PATCHES = {'megatron.training.checkpointing.save_checkpoint': print}\n"
    source += "def install():\n    for name, function in PATCHES.items(): apply(name, function)\n"
    check_found(source, target=f"{TRAINING}.checkpointing.save_checkpoint")


def test_a_mock() -> None:
    source = "from unittest import mock\nwith mock.patch('megatron.training.get_args'): ...\n"
    check_found({"tests/a.py": source}, options=with_mocks(), rule="MCU901")


def test_another_package_of_that_folder() -> None:
    check_noop("import megatron.trainings.x\nmegatron.trainings.x.y = print\n")
    check_noop("import megatron.bridge.training.train\nmegatron.bridge.training.train.train = print\n")


class TestWhatNoWheelHolds:
    """Packages that stand beside `megatron.core` in Megatron's repository alone."""

    @pytest.mark.parametrize("package", ["legacy", "post_training"])
    @pytest.mark.parametrize(
        ("source", "target"),
        [
            ("from megatron import {0} as p\nfrom ours import put\np.utils.put = put\n", "utils.put"),
            ("import megatron.{0}.utils as u\nimport ours\nu.put = ours.put\n", "utils.put"),
            ("import megatron.{0}.utils\nmegatron.{0}.utils.put = lambda: 1\n", "utils.put"),
            ("from megatron.{0} import utils\nutils.Model.forward = lambda: 1\n", "utils.Model.forward"),
            ("from megatron.{0}.utils import Model\nsetattr(Model, 'forward', lambda: 1)\n", "utils.Model.forward"),
            (
                "from megatron.{0}.utils import Model\ndef f(x): ...\nm = Model()\nm.forward = f\n",
                "utils.Model.forward",
            ),
            ("def register(n, f): ...\nregister('megatron.{0}.utils.put', print)\n", "utils.put"),
        ],
    )
    def test_found(self, source: str, target: str, package: str) -> None:
        finding = check_found(source.format(package), target=f"megatron.{package}.{target}", verdict="keep")
        assert finding.message.startswith("replaces ")
        assert finding.evidence.startswith(f"The wheel of megatron-core 0.19 lacks megatron.{package}: ")

    def test_the_head_of_a_model(self) -> None:
        source = "from megatron.legacy.model import GPTModel\nfrom ours import Head\n"
        source += "def build():\n    model = GPTModel()\n    model.output_layer = Head()\n    return model\n"
        check_found(source, rule="MCU501")
