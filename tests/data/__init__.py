"""What earlier releases have written, kept so that later ones prove that they read it."""
