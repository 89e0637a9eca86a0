"""INT8 calibration: the scales of the tensors inside the engines, from data."""
