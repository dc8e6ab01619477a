"""Text becomes the tokens that the tokenizers library gives, as an array that `trireme run` reads."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from trireme import Error
from trireme.tokens import _main, tokenize

END = "<|endoftext|>"
TEXTS = ["Three banks of oars in one rhythm.", "tensor, pipeline, data: é, 水, \U0001f6a3", ""]


@pytest.fixture()
def tokenizer(tmp_path: Path) -> str:
    """Byte-level pairs over every byte, so that any text comes back."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=[END], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(TEXTS * 9, trainer)
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return str(path)


def numbers(path: str, kind: str) -> list[int]:
    code = {"uint16": "H", "int32": "i"}[kind]
    return array(code, Path(path).read_bytes()).tolist()


def written(folder: Path) -> list[Path]:
    """One file of text, and one with a document per line."""
    plain, lines = folder / "plain.txt", folder / "lines.jsonl"
    plain.write_text(TEXTS[0], encoding="utf-8")
    lines.write_text("\n".join(json.dumps({"id": 1, "text": text}) for text in TEXTS[1:]) + "\n\n")
    return [plain, lines]


def test_documents_follow_each_other_with_the_separator_behind(tmp_path: Path, tokenizer: str) -> None:
    output = tmp_path / "tokens.bin"
    made = tokenize(written(tmp_path), tokenizer, output, separator=END)
    ids = numbers(made.path, made.type)
    library = Tokenizer.from_file(tokenizer)
    end = library.token_to_id(END)
    assert ids == [i for text in TEXTS for i in [*library.encode(text).ids, end]]
    assert library.decode(ids, skip_special_tokens=False) == END.join([*TEXTS, ""])
    assert (made.tokens, made.documents, made.type) == (len(ids), 3, "uint16")
    assert made.vocab_size == library.get_vocab_size()
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("tokens")) == ["tokens.bin"]


def test_a_vocabulary_beyond_two_bytes_takes_four(tmp_path: Path, tokenizer: str) -> None:
    large = Tokenizer.from_file(tokenizer)
    large.add_tokens([f"<{i}>" for i in range(1 << 16)])
    large.save(tokenizer)
    text = tmp_path / "text.txt"
    text.write_text("<65535>")
    made = tokenize([text], tokenizer, tmp_path / "tokens.bin")
    assert made.type == "int32"
    assert numbers(made.path, made.type) == [large.token_to_id("<65535>")]
    assert made.vocab_size > 1 << 16


@pytest.mark.parametrize(
    ("name", "content", "options", "parts"),
    [
        ("a.txt", b"\xff", {}, ["a.txt: not UTF-8: byte 0 is 0xff"]),
        ("a.jsonl", b'{"text": "x"}\nnope', {}, ["a.jsonl:2: not JSON"]),
        ("a.jsonl", b'{"body": "x"}', {}, ["a.jsonl:1: no text under the key 'text'; its keys are body"]),
        ("a.jsonl", b"[1]", {}, ["a.jsonl:1: no text under the key"]),
        ("a.txt", b"", {}, ["the files hold no text"]),
        ("a.txt", b"x", {"separator": "<|endoftxt|>"}, ["no token of the vocabulary; did you mean '<|endoftext|>'?"]),
    ],
)
def test_what_cannot_be_read_is_named_and_the_output_stays(
    tmp_path: Path, tokenizer: str, name: str, content: bytes, options: dict[str, str], parts: list[str]
) -> None:
    text, output = tmp_path / name, tmp_path / "tokens.bin"
    text.write_bytes(content)
    output.write_bytes(b"before")
    with pytest.raises(Error) as refused:
        tokenize([text], tokenizer, output, **options)
    assert refused.value.code == "invalid argument"
    for part in parts:
        assert part in str(refused.value)
    assert output.read_bytes() == b"before"
    assert not (tmp_path / "tokens.bin.part").exists()


def test_files_that_are_missing_or_also_the_output_are_refused(tmp_path: Path, tokenizer: str) -> None:
    text = tmp_path / "a.txt"
    text.write_text("x")
    cases: list[tuple[list[Path], Path | str, Path, str]] = [
        ([tmp_path / "none"], tokenizer, tmp_path / "o", "No such file"),
        ([text], tmp_path / "none.json", tmp_path / "o", "no such tokenizer.json"),
        ([text], text, tmp_path / "o", "not a tokenizer.json"),
        ([text], tokenizer, text, "also read"),
        ([text], tokenizer, tmp_path / "no" / "o", "No such file"),
        ([], tokenizer, tmp_path / "o", "no file"),
    ]
    for files, vocabulary, output, part in cases:
        with pytest.raises(Error, match=part):
            tokenize(files, vocabulary, output)
    assert text.read_text() == "x"


def test_the_command_says_how_to_train(
    tmp_path: Path, tokenizer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, output = tmp_path / "a.txt", tmp_path / "tokens.bin"
    text.write_text("oars")
    assert _main(["--tokenizer", tokenizer, "-o", str(output), str(text)]) == 0
    assert f"train with --data {output} --tokens uint16" in capsys.readouterr().out
    assert _main(["--tokenizer", tokenizer, "-o", str(output), str(tmp_path / "none")]) == 1
    assert "error: " in capsys.readouterr().err
