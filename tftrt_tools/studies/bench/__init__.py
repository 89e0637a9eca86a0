"""How fast a running server answers: scenarios, sweeps, the highest rate that keeps a promise, and what the server saw meanwhile."""
