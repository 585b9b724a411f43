"""The pages of audits: what was found, how sure it is, and the rows behind it."""
