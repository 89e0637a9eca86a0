"""What can be the cause, a file each. A file has `look(case)`, which yields findings and remarks."""
