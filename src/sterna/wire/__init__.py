"""Messages and bytes."""
