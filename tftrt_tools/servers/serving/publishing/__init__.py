"""Puts a version of a model in place below its base path: the evidence, the target server, the copy."""
