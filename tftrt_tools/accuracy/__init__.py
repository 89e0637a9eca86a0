"""Does the converted model answer like the original? Metrics, thresholds, the comparison. No TensorFlow in this process."""
