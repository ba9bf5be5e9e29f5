"""The tables of the pipeline as one page for people."""
