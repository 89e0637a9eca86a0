"""A whole command on a machine of a cluster: what it reads travels there, and what it writes comes back. `sending` runs it and puts its
files in their places; `request_job` runs on that machine."""
