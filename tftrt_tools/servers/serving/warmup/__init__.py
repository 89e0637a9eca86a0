"""The requests that a server runs while it loads a version."""
