"""The `tftrt` command: its commands, their flags, and the pages that they write."""
