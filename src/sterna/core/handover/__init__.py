"""What happens when a client moves from one broker to another."""
