"""Signatures around a model's own: encoded pictures, narrower numbers, smaller answers (`tftrt wrap`)."""
