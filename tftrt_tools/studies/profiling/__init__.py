"""Where the milliseconds of a call go: in TensorFlow, in each engine, in each layer."""
