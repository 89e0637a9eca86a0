"""The child's side of `tftrt wrap`: the ops around a signature, and a SavedModel that is written with them."""
