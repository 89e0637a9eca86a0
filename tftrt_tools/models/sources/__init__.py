"""What the user names as a model: a SavedModel, or a file that is exported to one while a command works."""
