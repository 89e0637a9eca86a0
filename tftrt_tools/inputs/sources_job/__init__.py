"""One file a source of calibration data. Each has `source(request)`, which checks and returns a function that starts reading."""
