"""Text to tokens, with a Hugging Face tokenizer: arrays for ``trireme run --tokens``.

    python -m trireme.tokens --tokenizer tokenizer.json -o corpus.bin book.txt pages.jsonl

A ``.jsonl`` file has a document per line, an object with the text under one key; any other file is
one document of UTF-8. Documents follow each other in the order given, each with the separator
behind it, if one is named. The array has no header: little-endian numbers of the narrowest of
uint16 and int32 that holds the vocabulary. It replaces an older one when it is complete.

Needs the package ``tokenizers``: ``pip install 'trireme[tokenizers]'``.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path as _Path
from typing import TYPE_CHECKING

from ._errors import Error

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Path = str | os.PathLike[str]

_BATCH = 256  # documents that are encoded at once, on all cores
_TYPES = {"uint16": "H", "int32": "i"}


@dataclass(frozen=True)
class Tokens:
    """What was written."""

    path: str
    type: str  #: of one token, as ``trireme run --tokens`` calls it
    tokens: int
    documents: int
    vocab_size: int  #: of the tokenizer; the model's has to be at least this


def _invalid(message: str) -> Error:
    return Error(message, "invalid argument")


def _load(path: Path) -> Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ImportError(
            "trireme.tokens needs the package tokenizers: pip install 'trireme[tokenizers]'"
        ) from error
    if not os.path.isfile(path):
        raise _invalid(f"{os.fspath(path)}: no such tokenizer.json")
    try:
        return Tokenizer.from_file(os.fspath(path))
    except Exception as error:  # the library has no class of its own
        raise _invalid(f"{os.fspath(path)}: not a tokenizer.json: {error}") from error


def _documents(path: _Path, key: str) -> Iterator[str]:
    try:
        if path.suffix != ".jsonl":
            yield path.read_text(encoding="utf-8")
            return
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _text(json.loads(line), key, f"{path}:{number}")
    except OSError as error:
        raise _invalid(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _invalid(f"{path}: not UTF-8: byte {error.start} is {error.object[error.start]:#04x}") from error
    except json.JSONDecodeError as error:
        raise _invalid(f"{path}:{number}: not JSON: {error.msg}") from error


def _text(line: object, key: str, where: str) -> str:
    text = line.get(key) if isinstance(line, dict) else None
    if isinstance(text, str):
        return text
    keys = sorted(line) if isinstance(line, dict) else []
    near = f"; its keys are {', '.join(keys)}" if keys else ""
    raise _invalid(f"{where}: no text under the key {key!r}{near}")


def _separator(tokenizer: Tokenizer, separator: str | None) -> list[int]:
    if separator is None:
        return []
    token = tokenizer.token_to_id(separator)
    if token is not None:
        return [token]
    near = difflib.get_close_matches(separator, tokenizer.get_vocab(), 1)
    raise _invalid(
        f"separator {separator!r} is no token of the vocabulary"
        + (f"; did you mean {near[0]!r}?" if near else "")
    )


def _encoded(tokenizer: Tokenizer, documents: Iterator[str], behind: list[int]) -> Iterator[list[int]]:
    while batch := list(islice(documents, _BATCH)):
        for encoding in tokenizer.encode_batch(batch, add_special_tokens=False):
            yield encoding.ids + behind


def tokenize(
    files: Sequence[Path],
    tokenizer: Path,
    output: Path,
    *,
    separator: str | None = None,
    text_key: str = "text",
) -> Tokens:
    """Writes the tokens of `files` to `output`.

    files: text, or ``.jsonl`` with a document per line under `text_key`.
    tokenizer: a Hugging Face ``tokenizer.json``. Its own special tokens are not added.
    separator: the token behind every document, such as ``"<|endoftext|>"``.

    Raises Error if a file cannot be read or holds no text, or the separator is not in the
    vocabulary; `output` is then as it was.
    """
    if not files:
        raise _invalid("no file to tokenize")
    known = _load(tokenizer)
    behind = _separator(known, separator)
    # Added tokens may lie beyond the count of tokens.
    vocab_size = max(known.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    kind = "uint16" if vocab_size <= 1 << 16 else "int32"
    target = _Path(output)
    for file in (*files, tokenizer):
        if _Path(file).resolve() == target.resolve():
            raise _invalid(f"{target}: would be overwritten, but it is also read")
    part = target.with_name(target.name + ".part")
    tokens = documents = 0
    texts = (text for file in files for text in _documents(_Path(file), text_key))
    try:
        with part.open("wb") as stream:
            for ids in _encoded(known, texts, behind):
                numbers = array(_TYPES[kind], ids)
                if sys.byteorder == "big":
                    numbers.byteswap()
                numbers.tofile(stream)
                tokens += len(ids)
                documents += 1
        if tokens == 0:
            raise _invalid("the files hold no text")
        part.replace(target)
    except OSError as error:
        raise Error(f"{target}: {error.strerror}", "unavailable") from error
    finally:
        part.unlink(missing_ok=True)
    return Tokens(str(target), kind, tokens, documents, vocab_size)


def _main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m trireme.tokens", description="Text to an array of tokens for trireme run."
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="text, or .jsonl with a document per line")
    parser.add_argument("--tokenizer", required=True, metavar="FILE", help="a Hugging Face tokenizer.json")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="where the tokens go")
    parser.add_argument("--separator", metavar="TOKEN", help="behind every document, such as '<|endoftext|>'")
    parser.add_argument("--text-key", default="text", metavar="KEY", help="of the text in .jsonl (default: text)")
    options = parser.parse_args(arguments)
    try:
        made = tokenize(
            options.files, options.tokenizer, options.output,
            separator=options.separator, text_key=options.text_key,
        )
    except (Error, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"tokens        {made.tokens} of {made.documents} documents, vocabulary {made.vocab_size}")
    print(f"written to    {made.path}: train with --data {made.path} --tokens {made.type}")
    return 0


if __name__ == "__main__":
    raise SystemExit(_main())
