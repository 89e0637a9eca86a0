"""Models on disk: where they come from, what they hold, what they are given, and what runs them."""
