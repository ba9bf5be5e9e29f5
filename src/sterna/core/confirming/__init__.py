"""A client learns when every broker that matters knows its subscription."""
