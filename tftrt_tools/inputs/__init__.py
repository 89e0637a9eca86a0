"""Where inputs come from: files, folders and functions of the user's, read as rows for a signature; labels beside them."""
