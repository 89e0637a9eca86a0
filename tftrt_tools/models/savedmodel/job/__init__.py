"""Reading, running and rewriting SavedModels with TensorFlow, in child processes."""
