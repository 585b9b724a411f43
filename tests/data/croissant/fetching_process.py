"""Fetch one file in a process of its own: CACHE URL SHA256 [PIECE]; prints what was received."""

from __future__ import annotations

import sys

from holdfast.data.croissant.fetching import downloads
from holdfast.data.croissant.fetching.access import Access
from holdfast.data.croissant.fetching.fetcher import Fetcher
from holdfast.data.croissant.fetching.file_requests import FileRequest

if __name__ == "__main__":
    cache, url, sha256, *rest = sys.argv[1:]
    downloads.SAVE_EVERY = 1
    piece = int(rest[0]) if rest else 1 << 20
    with Fetcher(Access(cache), parallel=1, piece=piece) as fetcher:
        (file,) = fetcher.fetch_all([FileRequest(url=url, sha256=sha256 or None)])
        print(file.received, file.path)
