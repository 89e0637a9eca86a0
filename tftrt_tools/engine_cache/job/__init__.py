"""What of the cache only child processes use."""
