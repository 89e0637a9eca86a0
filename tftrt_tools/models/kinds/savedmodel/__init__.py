"""SavedModels, as TensorFlow writes them and as TF-TRT converts them, and what can be exported to one."""
