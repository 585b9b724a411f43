"""Hugging Face's ``tokenizer.json``: pieces, merges and encoder of the models that it describes."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np

from holdfast.errors import InputError, MissingExtraError
from holdfast.lm.tokenizers import splitting_patterns
from holdfast.lm.tokenizers.byte_level import stand_ins
from holdfast.lm.tokenizers.chat import read_chat_template
from holdfast.lm.tokenizers.json_document import KINDS, Document, parse_document
from holdfast.lm.tokenizers.reading import check_id, pieces_in_order, read_json, read_text
from holdfast.lm.tokenizers.sentence_pieces import byte_of
from holdfast.lm.tokenizers.tokenizer import Merges, Tokenizer

_SPACE = "\u2581"
# Where no file says which tokens begin and end a text.
_USUAL_BOS = ("<s>", "<|begin_of_text|>", "<|endoftext|>", "<bos>", "[CLS]")
_USUAL_EOS = ("</s>", "<|end_of_text|>", "<|endoftext|>", "<eos>", "[SEP]")


def read_tokenizer_json(folder: Path, name: str) -> Tokenizer:
    """Read the tokenizer of a folder with ``tokenizer.json``, or of such a file.

    BOS and EOS are taken from tokenizer_config.json, special_tokens_map.json or config.json beside it, else
    from their usual names. Special tokens spell nothing, and in a text they are encoded as ordinary text;
    other added tokens spell their content. `merges` and `splitter` are set if they alone determine how a
    text is encoded; else they are None.

    Raises:
        InputError: if the file is missing, damaged, or of a kind whose tokens do not map to bytes.
        MissingExtraError: without the library `tokenizers`.
    """
    path = folder / "tokenizer.json" if folder.is_dir() else folder
    text = read_text(path)
    document = parse_document(path, read_json(path))
    encode, parse = _library(path, text)
    kind = KINDS[document.model["type"]]
    if document.has("ByteLevel"):
        spelled, lead = _byte_level_pieces(document), b""
    elif kind in ("wordpiece", "words"):
        spelled, lead = _word_pieces(document), b" "
    elif _has_visible_spaces(document):
        spelled, lead = _visible_space_pieces(document), _lead(document)
    else:
        raise InputError(
            "the tokens of this tokenizer do not say which bytes they spell",
            code="damaged",
            path=path,
            found=f"{document.model['type']} without ByteLevel, and without {_SPACE} for a space",
            expected="byte-level or SentencePiece-like BPE, Unigram, WordPiece or WordLevel",
        )
    for token, entry in document.added.items():
        spelled[token] = None if entry.get("special") else str(entry["content"]).encode()
    pieces, remarks = pieces_in_order(spelled)
    normalizes = _normalizes(document, kind)
    if normalizes:
        remarks += ("the tokenizer changes some texts before it encodes them",)
    splitter = _splitter(document) if kind == "bpe" and not normalizes else None
    merges = None
    if splitter is not None and all(entry.get("special") for entry in document.added.values()):
        merges = _merges(document)
    fallback = _fallback(document)
    bos, ends = _begin_and_ends(path.parent, document)
    ends = [token for token in ends if token < len(pieces) and pieces[token] is None] or ends[:1]
    return Tokenizer(
        name,
        pieces,
        encode,
        bos=bos,
        eos=ends[0] if ends else None,
        more_ends=tuple(ends[1:]),
        lead=lead,
        kind=kind,
        merges=merges,
        splitter=(splitter or None) if merges is not None else None,
        specials={
            str(entry["content"]): token
            for token, entry in document.added.items()
            if entry.get("special")
        },
        parse=parse,
        chat=read_chat_template(path.parent),
        byte_fallback=fallback,
        normalizes=normalizes,
        remarks=remarks,
    )


def _library(
    path: Path, text: str
) -> tuple[Callable[[bytes], list[int]], Callable[[str], list[int]]]:
    """The encoder of the library: for plain text, and with special tokens."""
    try:
        import tokenizers
    except ImportError as error:
        raise MissingExtraError("tokenizers", "hf") from error
    try:
        library = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises nothing more special
        raise InputError(
            "the library tokenizers does not accept this file",
            code="damaged",
            path=path,
            found=str(error),
            expected="tokenizer.json as that library saves it",
            remedy="save it again with the library, or load another kind of file",
        ) from error
    library.no_truncation()
    library.no_padding()
    library.encode_special_tokens = True
    if getattr(library.model, "dropout", None) is not None:
        library.model.dropout = None  # of training: an encoder gives the same answer every time

    def encode(text: bytes) -> list[int]:
        tokens: list[int] = library.encode(text.decode(), add_special_tokens=False).ids
        return tokens

    def parse(text: str) -> list[int]:
        library.encode_special_tokens = False
        try:
            tokens: list[int] = library.encode(text, add_special_tokens=False).ids
        finally:
            library.encode_special_tokens = True
        return tokens

    return encode, parse


def _byte_level_pieces(document: Document) -> dict[int, bytes | None]:
    """Tokens written in GPT-2's stand-ins; one that holds another character spells itself."""
    table = stand_ins()
    return {
        number: bytes(table[character] for character in token)
        if all(character in table for character in token)
        else token.encode()
        for token, number in document.ids.items()
    }


def _word_pieces(document: Document) -> dict[int, bytes | None]:
    """Words get their space in front; what continues a word has none."""
    unknown = document.model.get("unk_token")
    mark = document.model.get("continuing_subword_prefix", "##")
    words = document.model["type"] == "WordLevel"

    def spell(token: str) -> bytes | None:
        if token == unknown:
            return None
        if not words and mark and token.startswith(mark) and token != mark:
            return token.removeprefix(mark).encode()
        return b" " + token.encode()

    return {number: spell(token) for token, number in document.ids.items()}


def _visible_space_pieces(document: Document) -> dict[int, bytes | None]:
    """Tokens with U+2581 for a space, and ``<0x0A>`` for a byte where the model falls back to bytes."""
    fallback = bool(document.model.get("byte_fallback"))
    unknown = document.model.get("unk_id"), document.model.get("unk_token")

    def spell(token: str, number: int) -> bytes | None:
        if number == unknown[0] or token == unknown[1]:
            return None
        if fallback and _names_a_byte(token):
            return bytes([byte_of(token, document.path, f"model.vocab, token {token!r}")])
        return token.partition("\0")[0].replace(_SPACE, " ").encode()

    return {number: spell(token, number) for token, number in document.ids.items()}


def _names_a_byte(token: str) -> bool:
    return len(token) == 6 and token.startswith("<0x") and token.endswith(">")


def _fallback(document: Document) -> tuple[int, ...]:
    """[256] the id of every byte's own token, or none at all."""
    if not document.model.get("byte_fallback"):
        return ()
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    return tuple(document.ids[name] for name in names) if set(names) <= set(document.ids) else ()


def _has_visible_spaces(document: Document) -> bool:
    """Whether U+2581 stands for a space."""
    return document.has("Metaspace") or any(
        step.get("type") == "Replace" and _SPACE in json.dumps(step, ensure_ascii=False)
        for step in document.steps
    )


def _lead(document: Document) -> bytes:
    """What decoding strips from the start."""
    for step in document.decoders:
        if step.get("type") == "Metaspace":
            never = step.get("prepend_scheme") == "never" or step.get("add_prefix_space") is False
            return b"" if never else b" "
        if step.get("type") == "Strip" and step.get("content") == " " and step.get("start"):
            return b" "
    return b""


def _normalizes(document: Document, kind: str) -> bool:
    """Whether the encoder may change a text.

    A space in front and U+2581 for spaces change none; a space that is put in front of texts without one
    does (texts with and without it become the same).
    """
    changing = [
        step
        for step in document.normalizers
        if step.get("type") != "Prepend"
        and not (step.get("type") == "Replace" and step.get("content") == _SPACE)
    ]
    prefixing = any(
        (step.get("type") == "ByteLevel" and step.get("add_prefix_space"))
        or (step.get("type") == "Metaspace" and step.get("prepend_scheme", "always") != "never")
        for step in document.splitters
    )
    return bool(changing) or prefixing or kind in ("wordpiece", "words")


def _splitter(document: Document) -> str | None:
    """The pattern that cuts a text into words: "" if it stays whole, None if more than one decides."""
    cuts = [
        step
        for step in document.splitters
        if not (step.get("type") == "ByteLevel" and not step.get("use_regex", True))
        and not (step.get("type") == "Metaspace" and step.get("split") is False)
    ]
    if not cuts:
        return ""
    if len(cuts) > 1:
        return None
    if cuts[0].get("type") == "ByteLevel":
        return splitting_patterns.GPT2
    if cuts[0].get("type") != "Split" or not isinstance(cuts[0].get("pattern"), dict):
        return None
    pattern = cuts[0]["pattern"].get("Regex")
    keeps = (cuts[0].get("behavior"), bool(cuts[0].get("invert"))) in (
        ("Isolated", False),
        ("Removed", True),
    )
    return pattern if keeps and pattern in splitting_patterns.KNOWN else None


def _merges(document: Document) -> Merges | None:
    """The merges in order; None where parts of words are marked, so that a merge makes another text."""
    marks = ("continuing_subword_prefix", "end_of_word_suffix")
    if any(document.model.get(mark) for mark in marks):
        return None
    rows = []
    for rank, entry in enumerate(document.model.get("merges") or []):
        pair = entry.split(" ") if isinstance(entry, str) else entry
        place = f"model.merges, entry {rank}"
        if (
            not isinstance(pair, list)
            or len(pair) != 2
            or not all(isinstance(x, str) for x in pair)
        ):
            raise InputError(
                "this is not a merge",
                code="damaged",
                path=document.path,
                place=place,
                found=repr(entry)[:60],
                expected="two tokens",
            )
        for token in (*pair, "".join(pair)):
            if token not in document.ids:
                raise InputError(
                    "this merge names a token that the vocabulary does not hold",
                    code="unknown-name",
                    path=document.path,
                    place=place,
                    found=repr(token),
                    expected="a token of model.vocab",
                )
        rows.append((document.ids[pair[0]], document.ids[pair[1]], document.ids["".join(pair)]))
    columns = np.array(rows, np.int32).reshape(-1, 3)
    left, right, merged = (columns[:, place].copy() for place in range(3))
    return Merges(left, right, merged, rank=np.arange(len(rows), dtype=np.int32))


def _begin_and_ends(folder: Path, document: Document) -> tuple[int | None, list[int]]:
    """BOS by the first file that names one, and every id that one of them says ends a text."""
    ids = {**document.ids, **{entry["content"]: token for token, entry in document.added.items()}}
    names = (
        "tokenizer_config.json",
        "special_tokens_map.json",
        "config.json",
        "generation_config.json",
    )
    files = {file: read_json(folder / file) for file in names if (folder / file).is_file()}

    def find(*keys: str) -> tuple[list[int], bool]:
        """The ids named, and whether any file spoke of them."""
        found: list[int] = []
        spoke = False
        for file, key in product(names[:2], keys):
            if key not in files.get(file, {}):
                continue
            spoke, value = True, files[file][key]
            content = value.get("content") if isinstance(value, dict) else value
            if content is not None and content not in ids:
                raise InputError(
                    "this token is not in the vocabulary",
                    code="unknown-name",
                    path=folder / file,
                    place=key,
                    found=repr(content),
                    expected=f"a token of {document.path.name}",
                )
            found += [] if content is None else [ids[content]]
        for file, key in product(names[2:], keys):
            value = files.get(file, {}).get(f"{key}_id")
            for one in value if isinstance(value, list) else [value]:
                if one is not None:
                    found.append(check_id(one, path=folder / file, place=f"{key}_id"))
        return list(dict.fromkeys(found)), spoke

    begins, spoke = find("bos_token")
    if not begins and not spoke:
        begins = [ids[token] for token in _USUAL_BOS if token in ids][:1]
    # eot_token ends a turn of a conversation, where a file tells it apart from the end of text.
    ends, spoke = find("eos_token", "eot_token")
    if not ends and not spoke:
        ends = [ids[token] for token in _USUAL_EOS if token in ids][:1]
    return (begins[0] if begins else None), ends
