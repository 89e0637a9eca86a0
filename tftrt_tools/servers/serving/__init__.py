"""Publishing for TensorFlow Serving, running it, and asking it what it runs."""
