"""Running a SavedModel in a child process, and telling what ran: TensorFlow, native segments or engines."""
