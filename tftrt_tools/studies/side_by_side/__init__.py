"""`tftrt bench MODEL …`: models of any kind without a server, in one process and in turns, each against the first."""
