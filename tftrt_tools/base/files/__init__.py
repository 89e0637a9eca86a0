"""Files and folders: written whole or not at all, locked, cleared away, read as documents."""
