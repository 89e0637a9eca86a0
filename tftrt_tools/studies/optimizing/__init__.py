"""The whole way of `tftrt optimize`: the order of the other commands, and what they gave."""
