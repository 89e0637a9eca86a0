"""Sends requests to a running server, checks the answers, and finds out whether its TF-TRT engines ran."""
