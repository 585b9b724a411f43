"""Language models: their tokenizers and backends, and what is asked of them.

from holdfast.lm import query as q
"""

from holdfast.lm import query

__all__ = ["query"]
