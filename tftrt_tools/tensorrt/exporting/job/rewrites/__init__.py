"""The rewrites of `rewriting.REWRITES`, a file each."""
