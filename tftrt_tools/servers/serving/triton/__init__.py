"""Publishing for Triton: a model repository with its config.pbtxt, checked against a named release."""
