"""A function of the same purpose that is not NeMo RL's."""


def forward(model, batch, return_logprobs=False):
    return model(**batch, return_logprobs=return_logprobs)
