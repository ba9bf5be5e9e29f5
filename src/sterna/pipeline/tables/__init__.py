"""The archive: what journals become, as parquet tables that everybody can read."""

from sterna.extras import require

require("pipeline", "the archive")

from sterna.pipeline.tables.reading import read

__all__ = ["read"]
