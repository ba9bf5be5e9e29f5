"""The terms of subscriptions: what is wanted besides the events that match a filter."""
