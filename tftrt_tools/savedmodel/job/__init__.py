"""What reads, runs and rewrites SavedModels with TensorFlow, in child processes."""
