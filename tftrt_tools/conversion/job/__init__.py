"""What converts and builds, in child processes."""
