"""The tables of the pipeline as one page for people."""

from sterna.extras import require

require("pipeline", "the report")
