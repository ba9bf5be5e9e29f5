"""The declarative pipeline: which tables are made of which, and how Spark runs it."""

from sterna.extras import require

require("pipeline", "the pipeline")
require("archive", "the pipeline")
