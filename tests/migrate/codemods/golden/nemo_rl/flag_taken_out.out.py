def forward(model, ids, supported, **kwargs):
    if not supported:
        kwargs.pop("output_processor", None)
        kwargs.pop("output_processor_context", None)  # an older model
    if ids is None: kwargs.pop("output_processor", None); kwargs.pop("output_processor_context", None)
    return model(ids, **kwargs)
