"""Makers of the SavedModels of Transformers, built from a configuration with random weights. As in `_trained`."""

import numpy as np

ROWS = 64
LENGTH = 64


def distilbert(packages, target):
    """DistilBERT with a classifier: 6 layers of 256."""
    from transformers import DistilBertConfig, TFDistilBertForSequenceClassification

    settings = DistilBertConfig(vocab_size=8000, dim=256, n_layers=6, n_heads=8, hidden_dim=1024, num_labels=4)
    return _saved(TFDistilBertForSequenceClassification(settings), target, "logits"), None


def gpt2(packages, target):
    """GPT-2, the scores of the next tokens: 4 layers of 256."""
    from transformers import GPT2Config, TFGPT2LMHeadModel

    settings = GPT2Config(vocab_size=8000, n_embd=256, n_layer=4, n_head=8, n_positions=256, use_cache=False)
    return _saved(TFGPT2LMHeadModel(settings), target, "logits"), None


def _saved(network, target, answer):
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    network.build()
    specs = [tf.TensorSpec([None, None], tf.int32, name) for name in ("input_ids", "attention_mask")]

    @tf.function(input_signature=specs)
    def serve(input_ids, attention_mask):
        return {answer: network(input_ids=input_ids, attention_mask=attention_mask, training=False)[answer]}

    tf.saved_model.save(network, str(target), signatures={"serving_default": serve})
    draw = np.random.default_rng(0)
    lengths = draw.integers(LENGTH // 4, LENGTH + 1, (ROWS, 1))
    mask = (np.arange(LENGTH) < lengths).astype(np.int32)
    return {"input_ids": draw.integers(1, 8000, (ROWS, LENGTH)).astype(np.int32) * mask, "attention_mask": mask}
