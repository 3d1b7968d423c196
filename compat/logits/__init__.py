"""What a model returns instead of logits: an object that computes from hidden states what is asked of it."""
