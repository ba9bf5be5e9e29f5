"""The delivery audit: the oracle's rules (`sterna.model.delivery`) as joins over journals."""

from sterna.pipeline.audit.findings import FINDINGS, findings
from sterna.pipeline.audit.ledger import ledger
from sterna.pipeline.audit.verdict import Finding, Verdict, audit, audit_journals

__all__ = ["FINDINGS", "Finding", "Verdict", "audit", "audit_journals", "findings", "ledger"]
