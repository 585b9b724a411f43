"""The page of an audit, whichever it is."""

from __future__ import annotations

from holdfast.lm.query.audits.closing_words import ClozeAudit
from holdfast.lm.query.audits.comparing_groups import BiasAudit
from holdfast.lm.query.audits.listing_words import ToxicityAudit
from holdfast.lm.query.audits.memorizing import MemorizationAudit
from holdfast.lm.query.audits.reports.bias import bias_page
from holdfast.lm.query.audits.reports.cloze import cloze_page
from holdfast.lm.query.audits.reports.memorization import memorization_page
from holdfast.lm.query.audits.reports.toxicity import toxicity_page
from holdfast.report import Page

Audit = MemorizationAudit | BiasAudit | ToxicityAudit | ClozeAudit


def audit_page(found: Audit, model: str) -> Page:
    """The report of an audit."""
    match found:
        case MemorizationAudit():
            return memorization_page(found, model)
        case BiasAudit():
            return bias_page(found, model)
        case ToxicityAudit():
            return toxicity_page(found, model)
        case ClozeAudit():
            return cloze_page(found, model)
