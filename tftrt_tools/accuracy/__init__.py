"""Does the converted model answer like the original? Inputs, metrics, thresholds, the comparison. No TensorFlow in this process."""
