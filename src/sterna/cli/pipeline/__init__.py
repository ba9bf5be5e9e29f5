"""`sterna pipeline`: all bulk data work, on Spark."""

import typer

from sterna.cli.pipeline import audit, compact, match, mine, report, run, spec

app = typer.Typer(
    help="Archive, match, mine and audit events in bulk, on Spark.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.command(name="run")(run.run)
app.command(name="match")(match.match)
app.command(name="mine")(mine.mine)
app.command(name="audit")(audit.audit)
app.command(name="report")(report.report)
app.command(name="compact")(compact.compact)
app.command(name="spec")(spec.spec)


@app.callback()
def pipeline() -> None:
    """Archive, match, mine and audit events in bulk, on Spark."""
