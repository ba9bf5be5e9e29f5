"""Routing on an acyclic overlay: the table, the strategies, advertisements."""
