"""Running a model in a child process, and telling what ran there: the runtime itself, native segments or engines."""
