"""What the user names as a model: a SavedModel, or a file that is turned into one for as long as a command works."""
