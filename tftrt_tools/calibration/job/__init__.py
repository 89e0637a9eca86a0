"""What calibrates, in child processes."""
