"""Labels and versions of a running server: promote, rollback and the list of what it serves."""
