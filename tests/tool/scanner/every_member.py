"""The cases of `test_every_member`: for each set of names that the scanner knows, code that needs each of them."""

from mcore_unpatch.scanner.sources import prefilter

HEAD = """\
import sys, types, functools, builtins, inspect, importlib, copy, torch, unittest.mock as mock
from typing import Any, Final, Iterable, Iterator, List, Optional, Sequence, Tuple, Type, Union
import megatron.core.utils
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_model import GPTModel as Model
from megatron.core import parallel_state
from megatron.core.models.gpt import gpt_layer_specs
def f(self, *args): return self
"""
SHORT_HEAD = """\
from megatron.core.models.gpt import GPTModel
def f(self, *args): return self
"""
OTHER = (
    SHORT_HEAD
    + "class Own(GPTModel): pass\n"
    + "".join(
        f"def {verb}_all(cls, fn): setattr(cls, 'forward', fn)\n"
        for verb in ("patch", "override", "swap", "replace", "extend")
    )
)
REWRITER = "def patch(c, n): exec(inspect.getsource(getattr(c, n)))"
MADE = "import pytest\nmine = pytest.MonkeyPatch()\n"
ROW = "for p, g in [('megatron.core.utils.get_model_config', f)]:\n"
ENTRY = ROW.replace(".get", ":get")
FINDERS = {
    word: f"#!import sys\nPATH = '/megatron/core/models/gpt/gpt_model.py'\nsys.{word}.append(f)"
    for word in ("meta_path", "path_hooks")
}
ROPE = "from megatron.core.models.common.embeddings import rope_utils\nrope_utils.fused_apply_rotary_pos_emb = "

# By the set they are for: one text for all members, or one for each; `{}` is the member.
CASES: dict[str, str | dict[str, str]] = {
    "holding._LEAVES": "import os, pytest\nif megatron.core.__version__ < '0.16': {}()\nGPTModel.forward = f",
    "literals.as_bool": {
        "module": "import megatron.core as m\nif m: pass\nelse: GPTModel.forward = f",
        "class": "if GPTModel: pass\nelse: GPTModel.forward = f",
        "function": "if GPTModel.forward: pass\nelse: GPTModel.forward = f",
        "local-function": "if f: pass\nelse: GPTModel.forward = f",
        "local-module": "import other\nif other: pass\nelse: GPTModel.forward = f",
    },
    "holding._MISSING": "try: import megatron.core.none_such\nexcept {}: pass\nelse: GPTModel.forward = f\n"
    "try: import megatron.core.utils\nexcept {}: GPTModel._postprocess = f",
    "holding._ANYTHING": "try: import megatron.core.utils\nexcept {}: GPTModel._postprocess = f",
    "live._OF_THE_OBJECT": "def install(x):\n    if {}(x, int): GPTModel.forward = f",
    "resolver.core_reads": {
        "module": "try: megatron.core.utils.get_tensor_model_parallel_group_if_none\n"
        "except AttributeError: GPTModel.forward = f",
        "class": "try: GPTModel.none_such\nexcept AttributeError: pass\nelse: GPTModel.forward = f",
    },
    "holding._imports_by_call": {
        "import_module": "try: importlib.import_module('megatron.core.none_such')\n"
        "except ImportError: pass\nelse: GPTModel.forward = f",
        "__import__": "try: __import__('megatron.core.none_such')\n"
        "except ImportError: pass\nelse: GPTModel.forward = f",
    },
    "holding.conditions": {
        "function": "old = True\ndef g():\n    if old:\n        return\n    def h(old):\n        GPTModel.forward = f",
        "class": "old = True\nif old:\n    raise SystemExit\nclass C:\n    old = False\n    GPTModel.forward = f",
        "except": "try: import megatron.core.utils\nexcept ImportError: GPTModel.forward = f",
        "else": "try: import megatron.core.none_such\nexcept ImportError: pass\nelse: GPTModel.forward = f",
    },
    "values._DISTRIBUTION_VERSION": "import {}\nif {}('megatron-core') < '0.16': GPTModel.forward = f",
    "values._NAMED": {
        "import": "import megatron.core as m\nif m.__version__ < '0.16': GPTModel.forward = f",
        "from": "if hasattr(GPTModel, 'none_such'): GPTModel.forward = f",
        "def": "def old(): return megatron.core.__version__ < '0.16'\nif old(): GPTModel.forward = f",
        "class": "class Own: pass\nif Own is None: GPTModel.forward = f",
    },
    "values._SIGNATURES": "if 'padding_mask' in {}(GPTModel.forward).args: GPTModel.forward = f",
    "values._SIGNATURE_PARTS": "if 'padding_mask' in inspect.signature(GPTModel.forward).{}: GPTModel.forward = f",
    "values._VERSION_PARTS": {
        "base_version": "from packaging.version import Version\n"
        "if Version(megatron.core.__version__).base_version == '0.12.1': GPTModel.forward = f",
        "public": "from packaging.version import Version\n"
        "if Version(megatron.core.__version__).public == '0.12.1': GPTModel.forward = f",
        "release": "from packaging.version import Version\n"
        "if Version(megatron.core.__version__).release < (0, 16): GPTModel.forward = f",
        "major": "from packaging.version import Version\n"
        "if Version(megatron.core.__version__).major > 0: GPTModel.forward = f",
        "minor": "from packaging.version import Version\n"
        "if Version(megatron.core.__version__).minor > 15: GPTModel.forward = f",
        "micro": "from packaging.version import Version\n"
        "if Version(megatron.core.__version__).micro > 1: GPTModel.forward = f",
    },
    "values._hasattr": {
        "module": "if hasattr(megatron.core.utils, 'none_such'): GPTModel.forward = f",
        "class": "if hasattr(GPTModel, 'none_such'): GPTModel.forward = f",
        "instance": "def g(m: GPTModel):\n    if not hasattr(m, 'forward'): GPTModel.forward = f",
    },
    "values._signature": {
        "function": "if 'padding_mask' in inspect.signature(GPTModel.forward).parameters: GPTModel.forward = f",
        "class": "if 'vp_stage' in inspect.signature(GPTModel).parameters: GPTModel.forward = f",
    },
    "literals.version_fact": "if megatron.core.{} < '0.16': GPTModel.forward = f",
    "building.text": "{}(\"setattr(GPTModel, 'forward', f)\")",
    "expressions._BY_NAME": "{}('megatron.core.models.gpt.GPTModel').forward = f",
    "expressions._subscript": "{}()['GPTModel'].forward = f",
    "assignments._attribute#functions": "GPTModel.forward.{} = f.{}",
    "assignments._is_code": {
        "external": f"{ROPE}torch.relu",
        "class": f"{ROPE}Model",
        "function": f"{ROPE}megatron.core.utils.get_model_config",
    },
    "replacement.named_definition": {
        "def": "def own(self): return 1\n"
        "register_patch('megatron.core.models.gpt.gpt_model.GPTModel._postprocess', 'a.own')",
        "class": "class Own:\n    def __init__(self, one): ...\n"
        "register_patch('megatron.core.transformer.moe.moe_layer.MoELayer', 'a.Own')",
    },
    "evidence._possible": "def g({}): {}.activation_func = functools.partial(f, 1)",
    "detect._message": {"cls": "def g(cls): cls.forward = f", "class": "def g(mlp_class): mlp_class.forward = f"},
    "scopes.dict_owner": {
        "__dict__": "megatron.core.utils.__dict__['get_model_config'] = f",
        "__globals__": "GPTModel.forward.__globals__['parallel_state'] = f",
        "_modules": "m = GPTModel()\nm._modules['output_layer'] = torch.nn.Linear(1, 1)",
    },
    "assignments._attribute": "from megatron.core.transformer.moe.moe_layer import MoESubmodules\n"
    "MoESubmodules.__dataclass_fields__['router'].{} = f",
    "assignments.FUNCTION_PARTS": "GPTModel.forward.{} = f",
    "install._TYPES": "setattr(GPTModel, sys.argv[1], {}())",
    "expressions._instance_member#property": "class Own:\n    @functools.{}\n    def model(self) -> GPTModel: ...\n"
    "def g(own: Own): own.model.forward = f",
    "calls._from_namespace_update": {
        "update": "sys.modules.update({'megatron.core.utils': f})",
        "setdefault": "sys.modules.setdefault('megatron.core.utils', f)",
        "__setitem__": "sys.modules.__setitem__('megatron.core.utils', f)",
    },
    "assignments.is_setattr": {
        "setattr": "def put(o: GPTModel, n, v):\n    setattr(o, n, v)\nput(GPTModel(), 'forward', f)",
        "__setattr__": "def put(o: GPTModel, n, v):\n    type.__setattr__(o, n, v)\nput(GPTModel(), 'forward', f)",
    },
    "install.is_mock_object": "GPTModel.forward = mock.{}()",
    "install.is_callable": "from nowhere import g\nGPTModel.of_our_own = functools.{}(g)",
    "install.core_target": {
        "class": "register('megatron.core.models.gpt.GPTModel.forward', f)",
        "module": "register('megatron.core.mpu.get_tensor_model_parallel_rank', f)",
    },
    "assignments.set_by_name": {
        "class": "setattr(GPTModel, sys.argv[1], f)",
        "module": "setattr(megatron.core.utils, sys.argv[1], f)",
    },
    "prefilter._MODELS": {
        "GPTModel": "#!class A(GPTModel):\n    def forward(self, x): ...",
        "HybridModel": "##from megatron.core.models.hybrid.hybrid_model import HybridModel as B\n"
        "class A(B):\n    def forward(self, output_processor): ...",
        "MambaModel": "##from megatron.core.models.mamba import MambaModel as B\n"
        "class A(B):\n    def forward(self, output_processor): ...",
    },
    "hook_takers._METHODS": "class A(GPTModel):\n    def {}(self, x): ...",
    "traits._ADAPTERS": "def g(m: GPTModel): m.output_layer = {}(m.output_layer)",
    "traits._PRODUCT": {
        word: f"def new(x, weight=None): return {text}, None\ndef g(m: GPTModel): m.output_layer.forward = new"
        for word, text in {
            "linear": "linear(x, weight, out=float32)",
            "matmul": "torch.matmul(x, weight, dtype=torch.float32)",
            "float": "x.float() @ weight.float()",
        }.items()
    },
    "traits._PASSING": "def g(m: GPTModel): m.output_layer = {}(m.output_layer)",
    "traits._LOSSES": "def new(h, labels): return {}(h, labels)\n"
    "from megatron.core.transformer import multi_token_prediction as m\nm.process_mtp_loss = new",
    "traits._NAMED_IN_SPECS": {
        "Attention": "from megatron.core.transformer.attention import SelfAttention as A\nA.forward = f",
        "Linear": "from megatron.core.extensions.transformer_engine import TELinear as A\nA.forward = f",
        "MLP": "from megatron.core.transformer.mlp import MLP as A\nA.forward = f",
        "MoELayer": "from megatron.core.transformer.moe.moe_layer import MoELayer as A\nA.forward = f",
        "Norm": "from megatron.core.transformer.torch_norm import L2Norm as A\nA.forward = f",
        "TransformerLayer": "from megatron.core.transformer.transformer_layer import TransformerLayer as A\n"
        "A.forward = f",
        "Indexer": "from megatron.core.transformer.experimental_attention_variant.dsa import DSAIndexer as A\n"
        "A.forward = f",
    },
    "calls.from_mock#modules": {
        "dict": "mock.patch.dict(sys.modules, {'megatron.core.utils': f})",
        "setitem": "def t(monkeypatch): monkeypatch.setitem(sys.modules, 'megatron.core.utils', f)",
        "delitem": "def t(monkeypatch): monkeypatch.delitem(sys.modules, 'megatron.core.utils')",
    },
    "calls.from_mock#new": {
        "new": "def log_probs(self): return log_probs\nmock.patch.object(GPTModel, 'forward', new=log_probs)",
        "side_effect": "def log_probs(self): ...\nmock.patch.object(GPTModel, 'forward', side_effect=log_probs)",
        "object": "def log_probs(self): ...\nmock.patch.object(GPTModel, 'forward', log_probs)",
        "patch": "def log_probs(self): ...\nmock.patch('megatron.core.models.gpt.GPTModel.forward', log_probs)",
    },
    "calls.from_mock#attributes": {
        "object": "mock.patch.object(GPTModel, 'forward')",
        "multiple": "mock.patch.multiple(GPTModel, forward=f)",
        "setattr": "def t(monkeypatch): monkeypatch.setattr(GPTModel, 'forward', f)",
        "delattr": "def t(monkeypatch): monkeypatch.delattr(GPTModel, 'forward')",
    },
    "calls.from_mock#kinds": {
        "class": "mock.patch.object(GPTModel, 'forward')",
        "module": "mock.patch.object(megatron.core.utils, 'get_model_config')",
        "instance": "mock.patch.object(GPTModel(), 'forward')",
    },
    "annotations.CONTAINERS": "def g(m: {}[GPTModel]): m.forward = f",
    "annotations.annotation": "def g(m: {}[GPTModel]): m.forward = f",
    "bindings._bound_above": {
        "narrow": "def g(m: GPTModel):\n    assert isinstance(m, Other)\n    m.forward = f",
        "annotation": "def g():\n    m = GPTModel()\n    m: Any\n    m.forward = f",
    },
    "registries.from_table_method": {
        "extend": "patches.extend([('megatron.core.models.gpt.GPTModel.forward', f)])",
        "append": "patches.append(('megatron.core.models.gpt.GPTModel.forward', f))",
        "update": "patches.update({'megatron.core.models.gpt.GPTModel.forward': f})",
    },
    "restores._undoes": {
        word: f"class A:\n    {kind} __{start}enter__(self):\n        self.old = GPTModel.forward\n"
        f"        GPTModel.forward = f\n    {kind} __{start}exit__(self, *a): GPTModel.forward = self.old"
        for kind, start in (("def", ""), ("async def", "a"))
        for word in (f"__{start}enter__", f"__{start}exit__")
    },
    "restores._restores": "kept = {}\nGPTModel.forward = f\nGPTModel.forward = kept.{}('original')",
    "install._WRAPPERS": "def log_probs(self): return log_probs\nGPTModel.forward = torch.{}(log_probs)",
    "expressions.PASS_THROUGH_METHODS": "m = GPTModel().{}()\nm.forward = f",
    "expressions.PASS_THROUGH_CALLS": "def g(ms: List[GPTModel]):\n    for m in {}(ms): m.forward = f",
    "expressions.UNWRAPPERS": "from nowhere import m\nn = {}(m)\nn.forward = f",
    "resolver.execs": "def g():\n    {}(inspect.getsource(GPTModel.forward))",
    "expressions._instance_member": "GPTModel().{}.forward = f",
    "expressions._call": {
        "import_module": "importlib.import_module('megatron.core.utils').get_model_config = f",
        "__import__": "__import__('megatron.core.utils').core.utils.get_model_config = f",
    },
    "expressions._assigned_to_self": {
        "value": "class A:\n    def __init__(self): self.m = GPTModel()\nA().m.forward = f",
        "annotation": "class A:\n    def __init__(self): self.m: GPTModel = make()\nA().m.forward = f",
    },
    "strings.strings": {
        "class": "sys.modules[GPTModel.__module__].GPTModel = f",
        "function": "sys.modules[megatron.core.utils.divide.__module__].divide = f",
        "value": "NAME = 'forward'\nsetattr(GPTModel, NAME, f)",
        "item": "for name in ('forward', 'state_dict'): setattr(GPTModel, name, f)",
    },
    "expressions._attribute": {
        "class": "class A: pass\nA.output_layer.forward = f",
        "instance": "class A: pass\nA().output_layer.forward = f",
    },
    "source_rewrites._source_subject": "def g():\n    exec(inspect.{}(GPTModel.forward))",
    "source_rewrites.from_finder": {
        **{f"sys.{word}": text for word, text in FINDERS.items()},
        **{verb: FINDERS["meta_path"].replace("append", verb) for verb in ("insert", "append", "extend")},
    },
    "source_rewrites.from_helper": {
        "class": f"{REWRITER}\npatch(GPTModel, 'forward')",
        "module": f"{REWRITER}\npatch(megatron.core.utils, 'get_model_config') or patch_all(GPTModel)",
    },
    "surroundings._names_function": {
        "local-function": "def g(m: GPTModel):\n    m.forward = f\n    m.kept = f",
        "function": "old = GPTModel.state_dict\ndef g():\n    GPTModel.forward = f\n    GPTModel.kept = old",
        "class": "def g():\n    GPTModel.forward = f\n    GPTModel.kept = Model",
    },
    "sysmodules._targets": {
        "function": "for m in sys.modules.values():\n    if m.g is megatron.core.utils.get_model_config: m.g = f",
        "class": "for m in sys.modules.values():\n    if m.g == GPTModel: m.g = f",
        "value": "for m in sys.modules.values():\n    if m.g is megatron.core.utils.of_no_release: m.g = f",
    },
    # What the bytes of a file must say; these stand without the imports of the others, which say much.
    "prefilter._MOCKS": {
        "monkeypatch": "#!def t(monkeypatch, m: GPTModel): monkeypatch.setattr(m, 'of_no_release', f)",
        "mock": "#!from unittest import mock\nmock.patch.object(GPTModel, 'forward')",
    },
    "prefilter._CHILD_SETTERS": "#!def g(m: GPTModel): m.{}('output_layer', Head())",
    "prefilter._NAMESPACES": {
        "__dataclass_fields__": "#!from megatron.core.transformer import TransformerConfig\n"
        "TransformerConfig.__dataclass_fields__['x'] = f",
        "getsource": "#!import builtins, inspect\ndef g():\n    source = inspect.getsource(GPTModel.forward)\n"
        "    builtins.exec(source)",
        "__dict__": "#!import megatron.core.utils as u\nu.__dict__['get_model_config'] = f",
        "__globals__": "#!from megatron.core.utils import divide\ndivide.__globals__['divide'] = f",
        **FINDERS,
    },
    "prefilter._EXECS": {
        pattern.pattern.decode(): f'#!{verb}("type.__set" "attr__(GPTModel, \'forward\', f)")'
        for pattern, verb in zip(prefilter._EXECS, ("exec", "eval"), strict=True)
    },
    "prefilter._TARGETS": {
        pattern.pattern.decode(): text
        for pattern, text in zip(
            prefilter._TARGETS,
            ("#!for GPTModel.forward in [f]: pass", "#!with f() as GPTModel.forward: pass"),
            strict=True,
        )
    },
    "prefilter._NAMED_WORDS": {
        "setattr": "put = setattr\nput(GPTModel, 'forward', f)",
        "vars": "names = vars(megatron.core.utils)\nnames.update(get_model_config=f)",
        "__dict__": "names = megatron.core.utils.__dict__\nnames.update(get_model_config=f)",
        "_modules": "m = GPTModel()\nkids = m._modules\nkids.update(output_layer=torch.nn.Linear(1, 1))",
        "patch": "from unittest.mock import patch\npo = patch.object\npo(GPTModel, 'forward', f).start()",
    },
    "prefilter._BY_NAME": {
        "import_module": "##import importlib, nowhere\nROOT = 'megatron'\ndef f(): ...\n"
        "nowhere.patch_it(importlib.import_module(ROOT + '.core.utils'), 'get_model_config', f)",
        "__import__": "##import nowhere\nROOT = 'megatron'\ndef f(): ...\n"
        "nowhere.patch_it(__import__(ROOT + '.core.utils').core.utils, 'get_model_config', f)",
    },
    "prefilter._PATCH_VERBS": "#!import nowhere\nnowhere.{}_it(GPTModel, 'forward', f)",
    "prefilter._CALL_WORDS": {
        "_modules": "m = GPTModel()\nm._modules.update(output_layer=f)",
        "setattr": "setattr(GPTModel, NAME, f)",
        "delattr": "def g(m: GPTModel):\n    m.forward = f\n    delattr(m, 'forward')",
        "getsource": "def g():\n    source = inspect.getsource(GPTModel.forward)\n    exec(source)",
        "exec": "def g():\n    source = inspect.getsource(GPTModel.forward)\n    builtins.exec(source)",
        "__dict__": "megatron.core.utils.__dict__.__setitem__('get_model_config', f)",
        "vars": "vars(megatron.core.utils).update(get_model_config=f)",
        **{
            word.decode(): f"m = GPTModel()\nm.{word.decode()}('output_layer', torch.nn.Linear(1, 1))"
            for word in prefilter._CHILD_SETTERS
        },
        **FINDERS,
        "__globals__": "from megatron.core.utils import divide\ndivide.__globals__.update(divide=f)",
        "__dataclass_fields__": "from megatron.core.transformer import TransformerConfig\n"
        "TransformerConfig.__dataclass_fields__.update(x=f)",
        "patch": "def t(mocker): mocker.patch.object(GPTModel, 'forward')",
        "register_forward": "m = GPTModel()\nm.output_layer.register_forward_hook(f)",
    },
    # Patterns
    "calls._MOCKERS": {
        r"(?:^|\.)(?:mock|mocker)\.patch(?:\.|$)": "mock.patch('megatron.core.utils.get_model_config')",
        r"^patch(?:\.|$)": "def t(patch): patch.object(GPTModel, 'forward')",
        r"(?:^|\.)monkeypatch\.": "def t(monkeypatch): monkeypatch.setattr(GPTModel, 'forward', f)",
        r"^mp\.set(?:attr|item)$": "def t(mp): mp.setattr(GPTModel, 'forward', f)",
    },
    "restores.removals": {
        "class": "del GPTModel.forward",
        "module": "del megatron.core.utils.get_model_config",
    },
    "calls.is_mock": {
        ".setattr": f"{MADE}mine.setattr('megatron.core.utils.get_model_config', f)",
        ".delattr": f"{MADE}mine.delattr('megatron.core.utils.get_model_config')",
        ".setitem": f"{MADE}mine.setitem(sys.modules, 'megatron.core.utils', f)",
    },
    "calls._CHILDREN": "m = GPTModel()\nm.{}('output_layer', torch.nn.Linear(1, 1))",
    "calls._SETATTR": "put = {}\nput(GPTModel, 'forward', f)",
    "calls._child": {
        "name": "m = GPTModel()\nm.add_module(name='output_layer', module=torch.nn.Linear(1, 1))",
        "target": "m = GPTModel()\nm.set_submodule(target='output_layer', module=torch.nn.Linear(1, 1))",
        "module": "m = GPTModel()\nm.add_module('output_layer', module=torch.nn.Linear(1, 1))",
    },
    "calls._setattrs": {
        "map": "list(map(setattr, [GPTModel], ['forward'], [f]))",
        "starmap": "import itertools\nlist(itertools.starmap(setattr, [(GPTModel, 'forward', f)]))",
    },
    "building._cuts": {
        "rsplit": f"{ROW}    m, n = p.rsplit('.', 1)\n    setattr(importlib.import_module(m), n, f)",
        "rpartition": f"{ROW}    m, _, n = p.rpartition('.')\n    setattr(importlib.import_module(m), n, f)",
        "split": f"{ENTRY}    m, n = p.split(':')\n    setattr(importlib.import_module(m), n, f)",
        "partition": f"{ENTRY}    m, _, n = p.partition(':')\n    setattr(importlib.import_module(m), n, f)",
    },
    "helpers._from": {
        "opaque": f"{ROW}    m, n = p.rsplit('.', 1)\n    setattr(importlib.import_module(m), n, f)",
        "value": f"{ROW}    m = importlib.import_module(p[:22])\n    setattr(m, p[23:], f)",
    },
    "calls._HOOKS": "m = GPTModel()\nm.output_layer.{}(f)",
    "registries._REGISTERS": "{}_it('megatron.core.models.gpt.GPTModel.forward', f)",
    "registries._PATCHES": "import nowhere\nsetattr(nowhere.{}_it(GPTModel, 'forward', f), NAME, f)",
    "registries.from_patcher": {
        "class": "import nowhere\nnowhere.patch_it(GPTModel, 'forward', f)",
        "module": "import nowhere\nnowhere.patch_it(megatron.core.utils, 'get_model_config', f)",
        "instance": "import nowhere\nm = GPTModel()\nnowhere.patch_it(m, 'forward', f)",
    },
    "registries._TAKES_BACK": "{}_patch('megatron.core.models.gpt.GPTModel.forward', f)",
    "restores._KEPT": "GPTModel.forward = f\nGPTModel.forward = x.get('{}')",
    "replacement.OUTPUT_WORDS": "def g(self): return {}\nGPTModel.forward = g",
    "replacement.VALUE_WORDS": "def g(self): return {}\nGPTModel.state_dict = g",
}
# How a branch of a pattern is written where its text is not an example of itself.
EXAMPLES = {
    r"\bbak": "bak", r"\bold": "old", r"_real\b": "x_real", r"log_?probs?\b": "logprob", r"logp\b": "logp",
    "set_?attr": "set_attr",
    r"lm_loss\b": "lm_loss",
    "linear_?ce": "linear_ce", "fused_?ce": "fusedce", r"\bold_": "old_x", r"_old\b": "x_old", "^fn$": "fn",
    "^func$": "func", "^forward_fn$": "forward_fn", "_bak": "x_bak", "_old": "x_old",
}  # fmt: skip
