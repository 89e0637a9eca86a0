"""Two models against each other: interleaved rounds, a verdict that says when it cannot tell, goals, baselines and history."""
