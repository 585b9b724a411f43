"""Audits: questions of a template, asked, counted and judged."""
