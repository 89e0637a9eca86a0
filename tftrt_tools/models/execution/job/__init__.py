"""Running and watching models, in child processes."""
