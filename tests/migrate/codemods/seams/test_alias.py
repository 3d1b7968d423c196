"""Another name of an attribute, which code adds to a class of Megatron: the attribute is read instead, everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import unpatch
from planning import migrate

from mcore_unpatch.editing.edits import Options
from mcore_unpatch.megatron.versions import Version

MODEL = """
from megatron.core.models.gpt.gpt_model import GPTModel


class Model(GPTModel):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for layer in self.mtp.layers:
            # As it was called.
            if not hasattr(layer, "transformer_layer"):

                def _value(self):
                    return getattr(self, "mtp_model_layer")

                setattr(layer.__class__, "transformer_layer", property(_value))
            print(layer.transformer_layer.self_attention)
"""
CONVERT = """
from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer as _Layer
from megatron.core.transformer.transformer_layer import TransformerLayer


class Layer(_Layer):
    def forward(self):
        return self.transformer_layer(1)


def convert(model, index):
    layer = model.mtp.layers[index] if hasattr(model, "mtp") else None
    transformer_layer = layer.transformer_layer
    return transformer_layer
"""


def made(model: str = MODEL, convert: str = CONVERT, oldest: Version = (0, 19)) -> tuple[str, str, str]:
    """Both files, and why something is left."""
    chosen = Options(unsafe_fixes=True, target=(0, 19), pinned=lambda _: (oldest, (0, 19)))
    done = migrate({"pkg/model.py": model.encode(), "pkg/convert.py": convert.encode()}, chosen)
    first, second = (done.files[path].decode() for path in ("pkg/model.py", "pkg/convert.py"))
    return first, second, " ".join(remark.text for remark in done.plan.remarks)


@pytest.mark.parametrize("getter", ["lambda self: self.mtp_model_layer", "_value"])
def test_the_attribute_is_read(getter: str) -> None:
    start, end = MODEL.index("            # As"), MODEL.index("            print")
    before = MODEL.replace("property(_value)", f"property({getter})")
    if getter != "_value":
        before = before.replace(
            before[before.index("                def") : before.index("                setattr")], ""
        )
    model, convert, _ = made(before)
    assert model == (MODEL[:start] + MODEL[end:]).replace("layer.transformer_layer", "layer.mtp_model_layer")
    assert convert == CONVERT.replace("self.transformer_layer(", "self.mtp_model_layer(").replace(
        "= layer.transformer_layer", "= layer.mtp_model_layer"
    )


@pytest.mark.parametrize(
    ("old", "new", "because"),
    [
        ("def convert(model, index):", "def convert(model, layer):", "of what may be another object"),  # its own local
        ("model.mtp.layers[index]", "model.vision.layers[index]", "of what may be another object"),
        ("Layer(_Layer)", "Layer(TransformerLayer)", "of what may be another object"),
        ("= layer.transformer_layer", "= getattr(layer, 'transformer_layer')", "asks for `transformer_layer` by name"),
        ("return transformer_layer", "return 'mtp.0.transformer_layer.weight'", "asks for `transformer_layer` by name"),
        ("return transformer_layer", "layer.transformer_layer = None", "of what may be another object"),
        ("    def forward", "    def transformer_layer", "defines another `transformer_layer`"),
    ],
)
def test_what_may_mean_another_keeps_the_name(old: str, new: str, because: str) -> None:
    convert = CONVERT.replace(old, new)
    if "model, layer" in new:
        convert = convert.replace('    layer = model.mtp.layers[index] if hasattr(model, "mtp") else None\n', "")
    model, after, remarks = made(convert=convert)
    assert (model, after) == (MODEL, convert)
    assert convert != CONVERT
    assert because in remarks


def test_a_release_that_has_the_old_name_keeps_it() -> None:
    model, _, remarks = made(oldest=(0, 16))
    assert model == MODEL
    assert "has no `mtp_model_layer` there, or has `transformer_layer` itself" in remarks


def test_no_steps_for_a_release_on_which_they_raise(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "requirements.txt").write_text("megatron-core>=0.15\n")
    told = " ".join(unpatch("migrate", "--check", "--unsafe-fixes", cwd=tmp_path).out.split())
    assert "An official way exists, but not on megatron-core 0.15.0: use `mtp_model_layer`" in told
    assert "and remove line" not in told


def test_the_oldest_release_that_has_the_attribute_is_needed() -> None:
    files = {"pkg/model.py": MODEL.encode(), "pkg/convert.py": CONVERT.encode()}
    plan = migrate(files, Options(unsafe_fixes=True, target=(0, 19))).plan
    assert (plan.requirement, plan.dependency) == ("megatron-core>=0.17", None)
    files["pkg/convert.py"] += b"    getattr(model, 'transformer_layer')\n"
    assert migrate(files, Options(unsafe_fixes=True, target=(0, 19))).plan.requirement is None


def test_a_property_that_does_more_stays() -> None:
    for more in ('getattr(self, "mtp_model_layer", None)', "self.inner.mtp_model_layer", "other.mtp_model_layer"):
        model = MODEL.replace('getattr(self, "mtp_model_layer")', more)
        assert made(model)[0] == model != MODEL
