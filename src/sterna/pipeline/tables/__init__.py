"""The archive: what journals become, as parquet tables that everybody can read."""

from sterna.pipeline.tables.reading import read

__all__ = ["read"]
