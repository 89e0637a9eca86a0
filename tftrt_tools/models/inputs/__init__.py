"""Where inputs come from: the user's files, folders and functions, read as rows for a signature; and the labels of these rows."""
