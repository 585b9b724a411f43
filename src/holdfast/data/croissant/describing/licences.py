"""Licences recognised by their text, or by the short names that hosts of datasets use."""

from __future__ import annotations

import re

# SPDX id -> phrases that all stand in its text, and that no other licence here has together.
_PHRASES: dict[str, tuple[str, ...]] = {
    "CC-BY-NC-SA-4.0": ("attribution-noncommercial-sharealike 4.0 international",),
    "CC-BY-NC-ND-4.0": ("attribution-noncommercial-noderivatives 4.0 international",),
    "CC-BY-NC-4.0": ("attribution-noncommercial 4.0 international",),
    "CC-BY-SA-4.0": ("attribution-sharealike 4.0 international",),
    "CC-BY-ND-4.0": ("attribution-noderivatives 4.0 international",),
    "CC-BY-4.0": ("attribution 4.0 international", "creative commons"),
    "CC-BY-SA-3.0": ("attribution-sharealike 3.0 unported",),
    "CC-BY-3.0": ("attribution 3.0 unported", "creative commons"),
    "CC0-1.0": ("cc0 1.0 universal",),
    "Apache-2.0": ("apache license version 2.0, january 2004",),
    "MIT": (
        "permission is hereby granted, free of charge, to any person obtaining a copy",
        "the above copyright notice and this permission notice shall be included in all copies",
    ),
    "BSD-3-Clause": (
        "redistribution and use in source and binary forms, with or without modification, are permitted",
        "neither the name of",
    ),
    "BSD-2-Clause": (
        "redistribution and use in source and binary forms, with or without modification, are permitted",
    ),
    "AGPL-3.0-only": ("gnu affero general public license version 3, 19 november 2007",),
    "LGPL-3.0-only": ("gnu lesser general public license version 3, 29 june 2007",),
    "GPL-3.0-only": ("gnu general public license version 3, 29 june 2007",),
    "GPL-2.0-only": ("gnu general public license version 2, june 1991",),
    "MPL-2.0": ("mozilla public license version 2.0",),
    "ODbL-1.0": ("open database license", "odbl"),
    "ODC-By-1.0": ("odc attribution license",),
    "PDDL-1.0": ("public domain dedication & license",),
    "CDLA-Permissive-2.0": ("community data license agreement - permissive - version 2.0",),
    "CDLA-Permissive-1.0": ("community data license agreement - permissive - version 1.0",),
    "CDLA-Sharing-1.0": ("community data license agreement - sharing - version 1.0",),
    "Unlicense": ("this is free and unencumbered software released into the public domain",),
}
_SHORT = {name.lower(): name for name in _PHRASES} | {
    "gpl-3.0": "GPL-3.0-only",
    "gpl-2.0": "GPL-2.0-only",
    "agpl-3.0": "AGPL-3.0-only",
    "lgpl-3.0": "LGPL-3.0-only",
    "gpl-3.0-or-later": "GPL-3.0-or-later",
    "odbl": "ODbL-1.0",
    "odc-by": "ODC-By-1.0",
    "pddl": "PDDL-1.0",
    "cc0": "CC0-1.0",
}


def recognised(text: str) -> str | None:
    """The SPDX id of a licence's text; None if it is none of the common ones word for word."""
    plain = re.sub(r"[\s*#=_]+", " ", text.lower().replace("–", "-"))
    for name, phrases in _PHRASES.items():
        if all(phrase in plain for phrase in phrases):
            return name
    return None


def as_url(licence: str) -> str:
    """The address of a licence that is given by a short name in any case; other text as it is."""
    name = _SHORT.get(licence.strip().lower())
    return f"https://spdx.org/licenses/{name}.html" if name else licence.strip()
