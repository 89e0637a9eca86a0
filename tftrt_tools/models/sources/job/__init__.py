"""What exports files to SavedModels, in child processes."""
