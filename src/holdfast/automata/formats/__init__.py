"""Files: OpenFST text and binary, symbol tables, k2 text."""
