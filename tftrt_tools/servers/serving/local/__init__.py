"""A TensorFlow Serving for development, tests and CI: the same protocol, answers and errors, in Python. Not for production."""
