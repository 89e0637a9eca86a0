"""Model servers: they are set up, asked and put under load."""
