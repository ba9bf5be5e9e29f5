"""The delivery audit: the oracle's rules, which are `sterna.model.delivery`, over journals."""

from sterna.extras import require

require("pipeline", "the audit")

from sterna.pipeline.audit.stated import Stated, in_journals, in_table
from sterna.pipeline.audit.verdict import Finding, Verdict, audit, audit_journals, is_complete

__all__ = [
    "Finding",
    "Stated",
    "Verdict",
    "audit",
    "audit_journals",
    "in_journals",
    "in_table",
    "is_complete",
]
