"""The archive: what journals become, as Parquet tables for any reader."""

from sterna.pipeline.tables.reading import read

__all__ = ["read"]
