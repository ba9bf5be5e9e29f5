"""The `sterna` command, one file per subcommand."""
