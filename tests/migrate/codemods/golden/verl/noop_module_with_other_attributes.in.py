from verl.models.mcore import model_forward_fused as mff


def run(model):
    mff.patch_fused_forward(model)
    return mff.unwrap_model(model)
