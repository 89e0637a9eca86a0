"""What the messages of a log add up to. A collector takes each `entries.Entry` and keeps tables of bounded size."""
