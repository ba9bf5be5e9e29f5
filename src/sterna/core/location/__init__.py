"""Subscriptions that move with their client: location-dependent and dynamic filters."""
