"""Protocol messages as bytes, without TensorFlow."""
