"""What the text of a file is asked before it is parsed may only leave out what cannot patch: however it is spelled."""

import io
import random
import tokenize
from pathlib import Path

import pytest
from checking import check_found, write_files

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.scanner.sources import prefilter
from mcore_unpatch.scanner.sources.parsed import Parsed
from mcore_unpatch.scanner.sources.work_tree import WorkTree
from mcore_unpatch.survey.parallel import Task, analyse

GPT = "from megatron.core.models.gpt import GPTModel\n"
UTILS = "import megatron.core.utils as utils\n"
DEF = "def ours(*args, **kwargs): ...\n"
# Each is a whole file; the last line is spelled in other ways.
FORMS = {
    "class": f"{GPT}{DEF}GPTModel.forward = ours",
    "annotated": f"{GPT}{DEF}GPTModel.forward: object = ours",
    "tuple": f"{GPT}{DEF}GPTModel.forward, other = ours, 1",
    "second of a tuple": f"{GPT}{DEF}other, GPTModel.forward = 1, ours",
    "list": f"{GPT}{DEF}[GPTModel.forward] = [ours]",
    "parentheses": f"{GPT}{DEF}(GPTModel.forward) = ours",
    "chain": f"{GPT}{DEF}kept = GPTModel.forward = ours",
    "lambda": f"{GPT}GPTModel.forward = lambda self: None",
    "added": f"{GPT}{DEF}GPTModel.not_there_yet = ours",
    "module": f"{UTILS}{DEF}utils.get_model_config = ours",
    "added to a module": f"{UTILS}{DEF}utils.not_there_yet = ours",
    "none": f"{UTILS}utils.get_model_config = None",
    "alias in args": f"import megatron.training.arguments as margs\n{DEF}margs.parse_args = ours",
    "alias in config": f"import megatron.core.utils as my_config\n{DEF}my_config.get_model_config = ours",
    "alias in param": f"import megatron.core.utils as param\n{DEF}setattr(param, 'get_model_config', ours)",
    "whole path": f"import megatron.core.utils\n{DEF}megatron.core.utils.get_model_config = ours",
    "setattr": f"{GPT}{DEF}setattr(GPTModel, 'forward', ours)",
    "setattr of builtins": f"import builtins\n{GPT}{DEF}builtins.setattr(GPTModel, 'forward', ours)",
    "type": f"{GPT}{DEF}model = GPTModel()\ntype(model).forward = ours",
    "class of": f"{GPT}{DEF}model = GPTModel()\nmodel.__class__.forward = ours",
    "instance": f"import types\n{GPT}{DEF}model = GPTModel()\nmodel.forward = types.MethodType(ours, model)",
    "get": f"{GPT}{DEF}model = GPTModel()\nmodel.forward = ours.__get__(model)",
    "submodule": f"{GPT}model = GPTModel()\nmodel.output_layer = Head()",
    "layers": f"{GPT}model = GPTModel()\nmodel.decoder.layers[0] = Layer()",
    "vars": f"{UTILS}{DEF}vars(utils)['get_model_config'] = ours",
    "dict": f"{UTILS}{DEF}utils.__dict__['get_model_config'] = ours",
    "update": f"{UTILS}{DEF}utils.__dict__.update(get_model_config=ours)",
    "sys.modules": "import sys\nsys.modules['megatron.core.utils'] = fake",
    "of sys.modules": f"import sys\n{DEF}sys.modules['megatron.core.utils'].get_model_config = ours",
    "import_module": f"import importlib\n{DEF}importlib.import_module('megatron.core.utils').get_model_config = ours",
    "import_module as": f"from importlib import import_module as im\n{DEF}im('megatron.core.utils').divide = ours",
    "strings that join": f"import importlib\n{DEF}importlib.import_module('megatron' '.core.utils').divide = ours",
    "register": f"{DEF}register('megatron.core.utils.get_model_config', ours)",
    "patcher": f"{GPT}{DEF}patcher.replace(GPTModel, 'forward', ours)",
    "mock": f"from unittest import mock\n{GPT}{DEF}mock.patch.object(GPTModel, 'forward', ours).start()",
    "other letters": f"{GPT}{DEF}GPTModel.\uff46orward = ours",
    "update of children": f"{GPT}model = GPTModel()\nmodel._modules.update(output_layer=Head())",
    "child by keywords": f"{GPT}model = GPTModel()\nmodel.set_submodule(module=Head(), target='output_layer')",
    "written out": "import megatron.core.transformer.moe.moe_utils as mu\nmu.te_general_gemm = False",
    "if": f"{GPT}{DEF}if ours: GPTModel.forward = ours",
}
# In a file that does not say where the class comes from.
FIRST = "from megatron.core.models.gpt import GPTModel\nimport megatron.core.utils as utils\n"
UNSAID = {
    "class": f"from first import GPTModel\n{DEF}GPTModel.forward = ours",
    "module": f"from first import utils\n{DEF}utils.get_model_config = ours",
    "setattr": f"from first import GPTModel\n{DEF}setattr(GPTModel, 'forward', ours)",
    "instance": f"from first import GPTModel\n{DEF}model = GPTModel()\nmodel.decoder = ours",
}


def respelled(line: str, chance: random.Random) -> str:
    """The same tokens, with other white space between them."""
    depth, text, previous = 0, "", None
    for token in tokenize.generate_tokens(io.StringIO(line).readline):
        if token.type in {tokenize.NEWLINE, tokenize.ENDMARKER, tokenize.NL}:
            continue
        gaps = ["", " ", "\t", "\f", " \\\n", "\\\n  "]
        if depth:
            gaps += ["\n", "  # (a comment\n   ", "\n\n"]
        if previous is not None:
            needed = previous.end != token.start and previous.string.isidentifier() and token.string[:1].isalnum()
            after_if = previous.string == ":" or previous.string == "if"
            text += " " if after_if else chance.choice([gap for gap in gaps if gap.strip("\f") or not needed])
        text += token.string
        depth += (token.string in "([{") - (token.string in ")]}")
        previous = token
    return text


def findings(folder: Path, unfiltered: bool) -> list[tuple[str, str, str]]:
    tree = WorkTree(folder)
    paths = sorted(path.name for path in folder.glob("*.py"))
    task = Task(tree.read, tree.exists, lambda _: ((0, 19),), mocks=False, unfiltered=unfiltered)
    parts = list(analyse(paths, [1 for _ in paths], task, 1, Parsed(every_call=unfiltered)))
    assert [error for part in parts for error in part.errors] == []
    found: list[Finding] = [one for part in parts for one in part.findings]
    return sorted((one.path, one.target, one.shape) for one in found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(one, marks=pytest.mark.every_case) for one in (1, 2))])
@pytest.mark.parametrize("forms", [FORMS, UNSAID], ids=["said", "unsaid"])
def test_every_spelling_is_parsed(forms: dict[str, str], seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    files = {} if forms is FORMS else {"first.py": FIRST}
    for form, (name, text) in enumerate(forms.items()):
        head, _, last = text.rpartition("\n")
        for number in range(12):
            spelled = respelled(last, chance) if number else last
            source = f"{head}\n{spelled}\n"
            try:
                compile(source, name, "exec")
            except SyntaxError:  # a form feed in front of a statement, say
                continue
            files[f"form{form}_{number}.py"] = source
    write_files(tmp_path, files)
    assert len(files) > 9 * len(forms)
    without = findings(tmp_path, unfiltered=True)
    assert {path.partition("_")[0] for path, *_ in without} == {f"form{form}" for form in range(len(forms))}
    assert findings(tmp_path, unfiltered=False) == without


@pytest.mark.parametrize("name", FORMS)
def test_each_form_is_found(name: str) -> None:
    check_found(FORMS[name] + "\n")


def test_letters_of_another_encoding_may_look_like_the_end_of_a_text() -> None:
    hidden = f"# coding: shift-jis\n{GPT}{DEF}x = '\u8868'; GPTModel.forward = ours; y = '\u8868'; z = \"\\'\" # '\n"
    assert prefilter.may_install(hidden.encode("shift-jis"), mocks=False)


def test_a_quotation_mark_of_another_script_is_none() -> None:
    patch = f"{GPT}{DEF}x = '\uff07'\nGPTModel.forward = ours\ny = '\uff07'\n"
    assert prefilter.may_install(patch.encode(), mocks=False)


@pytest.mark.parametrize(
    ("path", "text", "says"),
    [
        ("a.py", "import megatron", True),
        ("a.py", "# Megatron", True),
        ("a.py", "import mcore_adapter", True),
        ("a.py", "from mcore import x", True),
        ("megatron/a.py", "x", True),
        ("my_mcore/a.py", "x", True),
        ("a.py", "x", False),
        ("meg/atron.py", "MEGATRO, mco re", False),
    ],
)
def test_what_says_megatron(path: str, text: str, says: bool) -> None:
    assert prefilter.mentions_megatron(path, text.encode()) is says
