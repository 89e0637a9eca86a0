"""Small detectors with combined_non_max_suppression, for tests."""

import numpy as np

GRID, STRIDE, CLASSES = 4, 4, 3
SIZE = GRID * STRIDE
# With this bias no score reaches the threshold.
BLIND = -30.0


def detector(path, seed=0, bias=0.0, noise=0.0, beside=False):
    """Write a detector of 16 cells, two boxes each. Args: bias: of all logits; noise: of its weights; beside: a second output, the scores
    before suppression."""
    import tensorflow as tf

    rng = np.random.default_rng(seed)
    weights = rng.normal(0, 0.6, (STRIDE, STRIDE, 3, 2 * (4 + CLASSES)))
    weights += noise * np.random.default_rng(1).normal(0, 1, weights.shape)
    kernel = tf.Variable(weights.astype(np.float32))
    centres = (np.stack(np.meshgrid(range(GRID), range(GRID), indexing="ij"), -1).reshape(-1, 1, 2) + 0.5) / GRID

    @tf.function(input_signature=[tf.TensorSpec((None, SIZE, SIZE, 3), tf.float32, name="image")])
    def serve(image):
        found = tf.reshape(tf.nn.conv2d(image, kernel, STRIDE, "VALID"), (-1, GRID * GRID, 2, 4 + CLASSES))
        middle = tf.constant(centres, tf.float32) + 0.1 * tf.tanh(found[..., :2])
        half = 0.15 + 0.1 * tf.sigmoid(found[..., 2:4])
        boxes = tf.reshape(tf.concat([middle - half, middle + half], -1), (-1, 2 * GRID * GRID, 1, 4))
        scores = tf.reshape(tf.sigmoid(found[..., 4:] - 3 + bias), (-1, 2 * GRID * GRID, CLASSES))
        kept = tf.image.combined_non_max_suppression(boxes, scores, 8, 12, iou_threshold=0.5, score_threshold=0.3)
        answer = {
            "boxes": kept.nmsed_boxes,
            "scores": kept.nmsed_scores,
            "classes": kept.nmsed_classes,
            "num_detections": kept.valid_detections,
        }
        return {**answer, "raw_scores": scores} if beside else answer

    module = tf.Module()
    module.kernel, module.serve = kernel, serve
    tf.saved_model.save(module, str(path), {"serving_default": serve})
    return path
