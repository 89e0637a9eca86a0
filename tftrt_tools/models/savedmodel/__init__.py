"""A SavedModel on disk: its files, its graph, its engine ops and engine assets, its passport."""
