"""What runs and watches models, in child processes."""
