"""All bulk data work, on Spark."""
