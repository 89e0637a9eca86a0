"""Sample models: builders of SavedModels, not weights.

Every model is built from a fixed seed, in float32, and lives in a module of its own with two functions:

    build(output_dir, **options) -> None
        writes the SavedModel; the same options give the same weights (trained ones: on the same kind of machine).
    sample_inputs(rng, batch, **options) -> {signature name: {input name: numpy array}}
        inputs as each signature takes them, drawn from the numpy Generator `rng`.

`NAMES` lists them, `description(name)` says what one is for, `build` and `sample_inputs` here take a name.
Importing this package imports neither TensorFlow nor a model.
"""

import importlib

_DESCRIPTIONS = {
    "digits_cnn": "a small CNN trained on real images of handwritten digits; class probabilities",
    "resnet50": "ResNet-50, seeded random weights with matching batch statistics; logits",
    "mobilenet_v2": "MobileNetV2 (depthwise convolutions), seeded random weights with matching batch statistics; logits",
    "spread_cnn": "a heavy CNN for digits with one block of badly spread channels that plain INT8 breaks; class probabilities",
    "bert_encoder": "a BERT-like encoder: int32 ids and mask, dynamic batch and length; two outputs",
    "lstm_tagger": "a bidirectional LSTM tagger: native loops between convertible layers, dynamic batch and length",
    "dynamic_segmenter": "a segmenter of images of any height and width, split by an op without a converter",
    "ranker": "a two-tower ranker: string inputs, vocabulary tables, large integers, three signatures, a helper function",
    "tf1_export": "a TF1 graph with reference variables, a hash table, an asset and an initialising main op",
}
NAMES = tuple(_DESCRIPTIONS)


def description(name):
    """What the model `name` is, in one line."""
    return _DESCRIPTIONS[name]


def builder(name):
    """The module that builds the model `name`; raises KeyError for an unknown name."""
    _DESCRIPTIONS[name]
    return importlib.import_module(f"saved_models.{name}")


def build(name, output_dir, **options):
    """Write the SavedModel `name` to `output_dir`; `options` are those of the model's own `build`."""
    builder(name).build(output_dir, **options)


def sample_inputs(name, rng, batch, **options):
    """Inputs of every signature of the model `name`. Returns: {signature: {input name: array of `batch` rows}}."""
    return builder(name).sample_inputs(rng, batch, **options)
