"""Pages and plots, made from typed results."""
