"""What makes the documentation site out of docs/, besides mkdocs.yml."""
