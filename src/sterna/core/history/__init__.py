"""Events from the past, for subscriptions that ask for them."""
