"""What every room stands on; it knows no model."""
