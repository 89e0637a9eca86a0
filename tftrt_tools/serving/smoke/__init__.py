"""Asks a running server for what it should answer, and finds out whether its TF-TRT engines ran."""
