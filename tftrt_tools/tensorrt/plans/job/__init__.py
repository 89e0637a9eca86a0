"""What runs in the child process that builds a plan. The functions take the module `tensorrt` as an argument, because tensorrt_rtx, which
has the API of later releases, takes the same calls."""
