"""Pre-subscription: a client's subscriptions are at its next places before it is."""
