"""The declarative pipeline: which tables are made of which, and how Spark runs it."""
