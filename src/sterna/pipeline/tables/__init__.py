"""The archive: what journals become, as Parquet tables for any reader."""

from sterna.extras import require

require("pipeline", "the archive")

from sterna.pipeline.tables.reading import read

__all__ = ["read"]
