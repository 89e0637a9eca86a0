"""One file a command: its flags (`define`), its help (the module docstring), the table it prints, its exit code (`run`)."""
