"""What was published before."""
