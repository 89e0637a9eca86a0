"""Compares two models: interleaved rounds, a verdict that says when it cannot tell, goals, baselines and history."""
