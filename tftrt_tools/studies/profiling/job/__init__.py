"""What runs in child processes of the profiler."""
