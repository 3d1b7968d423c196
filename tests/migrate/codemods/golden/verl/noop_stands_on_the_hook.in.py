from verl.models.mcore.model_forward_fused import FusedOutputProcessorContext, fused_output_processor


def log_probs(model, inputs):
    context = FusedOutputProcessorContext(temperature=0.7)
    return model(**inputs, output_processor=fused_output_processor, output_processor_context=context).log_probs
