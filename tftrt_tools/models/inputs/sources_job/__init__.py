"""A file for each kind of source. Each has `source(request)`, which checks the request and returns a function that starts reading."""
