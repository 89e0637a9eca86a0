"""The part of the cache that only child processes use."""
