"""Objects that are made, kept and marked in the file: fields, dictionaries, names that are computed."""

from checking import CORE, GPT, check_found, check_noop


class TestFields:
    """The default of a field of a dataclass."""

    SUBMODULES = f"{CORE}.transformer.moe.moe_layer.MoESubmodules"

    def test_of_another_class(self) -> None:
        check_noop("import megatron.core\nclass A: ...\nA.__dataclass_fields__['router'].default = A\n")


class TestNamesThatAreComputed:
    def test_the_last_part_of_a_path_that_callers_give(self) -> None:
        check_found(
            """
            from megatron.core.transformer.module import MegatronModule
            Models = list[MegatronModule]
            def head(hidden): return _hook(hidden, path="output_layer")
            def _hook(hidden, *, path):
                def hook(models: Models):
                    for model in models:
                        parent, parts = model, path.split(".")
                        for part in parts[:-1]:
                            parent = getattr(parent, part)
                        setattr(parent, parts[-1], Linear(hidden))
                return hook
            """,
            target=f"{GPT}.output_layer",
            confidence="likely",
        )


class TestMarks:
    """A helper that only notes that something was done is no patch."""

    def test_under_a_constant_name(self) -> None:
        files = {
            "guard.py": "_MARK = '_own_patches'\n"
            "def mark_patched(target, key):\n"
            "    applied = getattr(target, _MARK, None)\n"
            "    if applied is None:\n"
            "        applied = set()\n"
            "        setattr(target, _MARK, applied)\n"
            "    applied.add(key)\n",
            "use.py": "from guard import mark_patched\nfrom megatron.core.models.mamba.mamba_model import MambaModel\n"
            "mark_patched(MambaModel, 'own')\n",
        }
        check_noop(files)
