"""A TF1 export: graph and session, reference variables (VariableV2), a hash table filled by the main op from an asset.

Signature serving_default: image float32 (N, 16, 16, 3), colour string (N)
    -> logits float32 (N, 7), colour_index int64 (N), the line of the vocabulary or -1 for an unknown colour.
"""

import pathlib
import tempfile

COLOURS = ("red", "green", "blue", "yellow", "violet", "grey")
SIZE, CLASSES = 16, 7


def build(output_dir, *, seed=0):
    """Write the SavedModel with the TF1 builder."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default():
        vocabulary = pathlib.Path(folder) / "colours.txt"
        vocabulary.write_text("".join(f"{colour}\n" for colour in COLOURS))
        inputs, outputs = _graph(str(vocabulary), seed)
        with tf.compat.v1.Session() as session:
            session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.tables_initializer()])
            _save(session, str(output_dir), inputs, outputs)


def sample_inputs(rng, batch):
    """Image-like noise, known and unknown colours."""
    import numpy as np

    from saved_models import _export

    colours = np.array([*COLOURS, "mauve"], object)
    image = _export.images(rng, batch, SIZE)
    return {"serving_default": {"image": image, "colour": colours[rng.integers(len(colours), size=batch)]}}


def _save(session, output_dir, inputs, outputs):
    import tensorflow as tf

    v1 = tf.compat.v1
    builder = v1.saved_model.Builder(output_dir)
    builder.add_meta_graph_and_variables(
        session,
        [tf.saved_model.SERVING],
        signature_def_map={"serving_default": v1.saved_model.predict_signature_def(inputs, outputs)},
        assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
        main_op=v1.tables_initializer(),
        strip_default_attrs=True,
    )
    builder.save()


def _graph(vocabulary, seed):
    """Returns: the tensors ({input name: placeholder}, {output name: tensor}) of the default graph."""
    import numpy as np
    import tensorflow as tf

    v1 = tf.compat.v1
    rng = np.random.default_rng(seed)

    def variable(name, shape, fan_in):
        initial = rng.normal(scale=fan_in**-0.5, size=shape).astype(np.float32)
        return v1.get_variable(name, initializer=tf.constant(initial), use_resource=False)

    image = v1.placeholder(tf.float32, (None, SIZE, SIZE, 3), name="image")
    colour = v1.placeholder(tf.string, (None,), name="colour")
    lines = tf.lookup.TextFileInitializer(
        vocabulary, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
    )
    index = tf.lookup.StaticHashTable(lines, default_value=-1).lookup(colour)
    with v1.variable_scope("features"):
        x = tf.nn.conv2d(image, variable("conv1", (3, 3, 3, 16), 13), 2, "SAME")
        x = tf.nn.relu(tf.nn.bias_add(x, variable("bias1", (16,), 100)))
        x = tf.nn.conv2d(x, variable("conv2", (3, 3, 16, 32), 72), 2, "SAME")
        x = tf.nn.relu(tf.nn.bias_add(x, variable("bias2", (32,), 100)))
        x = tf.reduce_mean(x, axis=(1, 2))
    with v1.variable_scope("classifier"):
        rows = tf.gather(variable("colours", (len(COLOURS) + 1, 8), 1), index + 1)  # row 0 is for unknown colours
        x = tf.concat([x, rows], axis=1)
        x = tf.nn.relu(tf.matmul(x, variable("hidden", (40, 64), 20)) + variable("hidden_bias", (64,), 100))
        logits = tf.add(
            tf.matmul(x, variable("kernel", (64, CLASSES), 32)), variable("bias", (CLASSES,), 100), name="logits"
        )
    return {"image": image, "colour": colour}, {"logits": logits, "colour_index": index}
