#!/usr/bin/env python3
"""Writes tests/data/vocabulary_files/: small SentencePiece and tiktoken files, and what their libraries make of text.

    python3 tests/reference/make_vocabulary_files.py tests/data/vocabulary_files

Needs sentencepiece 0.2.3, tiktoken 0.14, transformers 5.24, regex and protobuf. SentencePiece files: ids of plain text
are SentencePiece's; special tokens, and all text on the way back, are those of transformers' AutoTokenizer, which has
to agree with SentencePiece about plain text. Files of Kimi, Hunyuan and Qwen: tiktoken's, with the pattern, the special
tokens and the limits that the families' published tokenizer classes have.
"""

import base64
import collections
import io
import json
import os
import sys
import tempfile
import unicodedata

import regex
import sentencepiece
import tiktoken
import transformers
from sentencepiece import sentencepiece_model_pb2

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
TEXTS = [case["text"] for case in json.load(open(os.path.join(DATA, "tokenizers/mixtral/cases.json")))["encode"]]
TEXTS += [
    "▁",
    "▁a",
    " ▁ a",
    "a▁b",
    " a",
    "   a  b   ",
    "<0x41>",
    "\u3000wide\u3000space",
    "x\x00y",
    "ﬁne ﬂow ½ ① Å",
    "caf\u0065\u0301",
    "日本語のテキストと漢字かな交じり",
    "中文字符ABC中文",
    "HelloWorld fooBar XMLHttpRequest",
    "don't DON'T it'S",
    "1234567890 1 22 333 4444",
    "e\u0301\u0302 combining",
    "ſſ 's ſ 'ſ",
    "\x1c\x1d a\x1fb \x85c",
    "zz qq xx jj zq",
    "<ud><ud>",
    "x<ud>y <ud> z",
    "new york new  york",
]
# Words that train the vocabularies: enough for joins of several lengths.
CORPUS = [
    line for line in open(os.path.join(DATA, "demo/validation.txt"), encoding="utf-8").read().split("\n") if line
][:150]
CORPUS += [
    "Hello world, hello World",
    "HelloWorld fooBar XMLHttpRequest",
    "日本語のテキストと漢字",
    "今天天气很好，我们去公园。",
    "中文字符",
    "Привет, мир!",
    "naïve café déjà vu",
    "don't it's we'll I'm",
    "1234567890 12 123",
    "    four spaces\n\ttab",
    "ﬁne ½ Å",
]


def write(directory, name, content):
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, name), "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())


def write_json(directory, name, value):
    write(directory, name, json.dumps(value, ensure_ascii=True, indent=1) + "\n")


def write_cases(directory, file, vocab_size, encode, decode):
    lines = [json.dumps(case, ensure_ascii=True) for case in encode]
    decode_lines = [json.dumps(case, ensure_ascii=True) for case in decode]
    write(
        directory,
        "cases.json",
        '{"file": %s, "vocab_size": %d,\n"encode": [\n%s],\n"decode": [\n%s]}\n'
        % (json.dumps(file), vocab_size, ",\n".join(lines), ",\n".join(decode_lines)),
    )


# SentencePiece


def train(**options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=model,
        character_coverage=1.0,
        num_threads=1,
        minloglevel=2,
        **options,
    )
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    proto.trainer_spec.ClearField("input")
    return proto


def plain(text, markers):
    return not any(marker in text for marker in markers)


def sentencepiece_kind(
    directory, proto, config, special_texts, added_tokens=None, transformers_agrees=lambda text: True, always_first=True
):
    """`special_texts`: texts with added tokens. `transformers_agrees`: false where transformers is known to differ."""
    model = proto.SerializeToString()
    write(directory, "tokenizer.model", model)
    if config is not None:
        write_json(directory, "tokenizer_config.json", config)
    if added_tokens is not None:
        write_json(directory, "added_tokens.json", added_tokens)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    with tempfile.TemporaryDirectory() as copy:
        for name in os.listdir(directory):
            if name != "cases.json":
                write(copy, name, open(os.path.join(directory, name), "rb").read())
        if config is None:
            write_json(copy, "tokenizer_config.json", {})
        write_json(copy, "config.json", {"model_type": "ernie4_5_moe"})
        tokenizer = transformers.AutoTokenizer.from_pretrained(copy)
    added = [token.content for token in tokenizer.added_tokens_decoder.values()]
    encode = []
    num_different = 0

    def decode(ids, skip):
        if not proto.trainer_spec.treat_whitespace_as_suffix:
            return tokenizer.decode(ids, skip_special_tokens=skip)
        # transformers would take the space off the beginning.
        special = (proto.pieces[0].UNKNOWN, proto.pieces[0].CONTROL)
        pieces = [proto.pieces[i].piece for i in ids if not (skip and proto.pieces[i].type in special)]
        return "".join(pieces).replace("▁", " ").removesuffix(" ")

    for text in TEXTS + special_texts:
        ids = tokenizer.encode(text, add_special_tokens=False)
        if proto.trainer_spec.treat_whitespace_as_suffix and not plain(text, added):
            continue  # transformers always puts it in front.
        if plain(text, added) and always_first:
            expected = processor.encode(text)
            if transformers_agrees(text):
                assert ids == expected, (directory, text, ids, expected)
            num_different += ids != expected
            with_special = tokenizer.encode("")  # Around nothing: what stands in front.
            assert not with_special or with_special == [tokenizer.bos_token_id]
            with_special = with_special + expected
            ids = expected
        else:
            with_special = tokenizer.encode(text)
        encode.append(
            {
                "text": text,
                "ids": ids,
                "ids_with_special": with_special,
                "decoded": decode(ids, False),
                "decoded_skip_special": decode(with_special, True),
            }
        )
    if num_different > 0:
        print(directory, "transformers cuts", num_different, "texts differently; SentencePiece counts")
    byte = {piece.piece: i for i, piece in enumerate(proto.pieces) if piece.type == piece.BYTE}
    lists = [list(range(len(tokenizer))), encode[8]["ids"] + [tokenizer.unk_token_id] + encode[9]["ids"], [1, 2], []]
    if byte:
        good = [byte["<0x%02X>" % b] for b in "é😀".encode()]
        lists += [good, good[:1] + encode[8]["ids"], encode[8]["ids"] + good[:4] + good[3:4] + good]
    cases = [{"ids": ids, "decoded": decode(ids, False), "decoded_skip_special": decode(ids, True)} for ids in lists]
    write_cases(directory, "tokenizer.model", len(tokenizer), encode, cases)


def added(content, special=True, **flags):
    return {
        "content": content,
        "lstrip": False,
        "rstrip": False,
        "single_word": False,
        "normalized": False,
        "special": special,
        **flags,
    }


def make_sentencepiece(root):
    def path(name):
        return os.path.join(root, name)

    # As Mixtral: BPE with bytes, text as it is, a space in front. A piece is renamed, and tokens stand behind the model's.
    proto = train(
        model_type="bpe",
        vocab_size=460,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        user_defined_symbols=["<free>", "<ud>", "york new"],
    )
    size = len(proto.pieces)
    config = {
        "tokenizer_class": "LlamaTokenizer",
        "add_bos_token": True,
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "pad_token": None,
        "added_tokens_decoder": {
            "0": added("<unk>"),
            "1": added("<s>"),
            "2": added("</s>"),
            "3": added("<|start|>"),
            str(size): added("<|im_end|>"),
            str(size + 1): added("<tool>", special=False),
            str(size + 2): added("<mask>", lstrip=True),
        },
    }
    special = [
        "<s>",
        "<s>Hello",
        "a<s>b",
        "<s> hi</s> ho",
        "<|start|>x<|im_end|>\n y",
        "a <tool> b<tool>c",
        "a  <mask> b",
        "<unk> x",
        "<|im_end|><|im_end|>",
        " <s>",
        "<s>▁a",
        "<s>日本",
    ]
    sentencepiece_kind(path("bpe"), proto, config, special)

    # Unigram with character rules and without superfluous spaces. No tokenizer_config.json.
    rules = tempfile.NamedTemporaryFile("w", suffix=".tsv", delete=False, encoding="utf-8")
    with rules:
        for source, target in [
            ("ﬁ", "fi"),
            ("½", "1/2"),
            ("Å", "å"),
            ("\u00e9", "e"),
            ("e\u0301", "e"),
            ("\t", " "),
            ("\u3000", " "),
            ("\x01", ""),
            ("①", "(1)"),
            ("ab", "ba"),
            ("\n", "  "),
            ("日本", "JP"),
        ]:
            rules.write("%s\t%s\n" % (" ".join("%X" % ord(c) for c in source), " ".join("%X" % ord(c) for c in target)))
    proto = train(
        model_type="unigram",
        vocab_size=560,
        byte_fallback=True,
        normalization_rule_tsv=rules.name,
        user_defined_symbols=["<ud>", "york new", "½½"],
        control_symbols=["<ctl>"],
    )
    os.unlink(rules.name)
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    # transformers' character rules work on whole clusters, and spaces are cut off elsewhere.
    sentencepiece_kind(
        path("unigram"),
        proto,
        None,
        ["<s>", "<ctl>a", "x<ctl> y</s>  ", "  <s>  "],
        transformers_agrees=lambda text: False,
    )

    # Unigram where unknown characters stay unknown; the space in front of the text only.
    proto = train(
        model_type="unigram", vocab_size=300, normalization_rule_name="identity", remove_extra_whitespaces=False
    )
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "legacy": False,
        "add_eos_token": False,
        "eos_token": "</s>",
        "additional_special_tokens": ["<|a|>", "<s>"],
    }
    sentencepiece_kind(
        path("unigram_unknown"), proto, config, ["<s>", "a<s>b", "<|a|> b", "b <|a|>  b", "<s><s>a"], always_first=False
    )

    # As ERNIE 4.5: no space in front, tokens in added_tokens.json.
    proto = train(
        model_type="bpe",
        vocab_size=440,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        control_symbols=["<mask:1>", "<cls>"],
        allow_whitespace_only_pieces=True,
    )
    size = len(proto.pieces)
    config = {
        "tokenizer_class": "Ernie4_5_Tokenizer",
        "bos_token": "<s>",
        "cls_token": "<|begin_of_sentence|>",
        "eos_token": "</s>",
        "sep_token": "<|end_of_sentence|>",
        "pad_token": "<unk>",
        "unk_token": "<unk>",
    }
    sentencepiece_kind(
        path("bpe_ernie"),
        proto,
        config,
        ["<|begin_of_sentence|>User: hi\nAssistant: ", "<mask:1> x<cls>", "<|end_of_sentence|> <|end_of_sentence|>"],
        added_tokens={"<|begin_of_sentence|>": size, "<|end_of_sentence|>": size + 1},
    )

    # Against the grain: equal scores, unused pieces, pieces whose characters are unknown, space at the end of words.
    proto = train(
        model_type="bpe",
        vocab_size=330,
        normalization_rule_name="identity",
        user_defined_symbols=["<ud>"],
        treat_whitespace_as_suffix=True,
    )
    for i, piece in enumerate(proto.pieces):
        if piece.type != piece.NORMAL:
            continue
        piece.score = -float(i // 7)
        if len(piece.piece) > 2 and i % 5 == 0:
            piece.type = piece.UNUSED
        if piece.piece in "lhÅ":
            piece.piece = "☃" + piece.piece + "☃"
    sentencepiece_kind(path("bpe_odd"), proto, None, [], transformers_agrees=lambda text: False)
    proto = train(
        model_type="unigram",
        vocab_size=330,
        normalization_rule_name="identity",
        user_defined_symbols=["<ud>", "he", "▁w"],
    )
    for i, piece in enumerate(proto.pieces):
        if piece.type == piece.NORMAL and len(piece.piece) > 1:
            piece.score = -float(i // 40) * 0.7
            if i % 5 == 0:
                piece.type = piece.UNUSED
    sentencepiece_kind(path("unigram_odd"), proto, None, [], transformers_agrees=lambda text: False)


# tiktoken

KIMI_PATTERN = "|".join(
    [
        r"""[\p{Han}]+""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    ]
)
DIGIT_PATTERN = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"""
    r"""|\s+(?!\S)|\s+"""
)


def train_ranks(pattern, size):
    words = [[bytes([b]) for b in word.encode()] for word in regex.findall(pattern, "\n".join(CORPUS), regex.V1)]
    ranks = {bytes([b]): b for b in range(256)}
    while len(ranks) < size:
        counts = collections.Counter(pair for word in words for pair in zip(word, word[1:]))
        pair = max(counts, key=lambda p: (counts[p], p))
        ranks[pair[0] + pair[1]] = len(ranks)
        for word in words:
            i = 0
            while i + 1 < len(word):
                if (word[i], word[i + 1]) == pair:
                    word[i : i + 2] = [pair[0] + pair[1]]
                i += 1
    return ranks


def rank_lines(ranks):
    return "".join("%s %d\n" % (base64.b64encode(token).decode(), rank) for token, rank in ranks.items())


def bounded(text):
    """The cuts of Kimi's class: 400,000 characters, and 25,000 of one kind."""
    for begin in range(0, len(text), 400_000):
        chunk = text[begin : begin + 400_000]
        start, length, space = 0, 0, chunk[0].isspace()
        for i, c in enumerate(chunk):
            if c.isspace() != space:
                length, space = 1, c.isspace()
            else:
                length += 1
                if length > 25_000:
                    yield chunk[start:i]
                    start, length = i, 1
        yield chunk[start:]


def tiktoken_kind(
    directory, file, lines, config, encoding, skipped, special_texts, vocab_size, prepare=lambda text: [text]
):
    write(directory, file, lines)
    if config is not None:
        write_json(directory, "tokenizer_config.json", config)

    def decode(ids, skip):
        return encoding.decode([i for i in ids if not (skip and i in skipped)], errors="replace")

    encode = []
    for text in TEXTS + special_texts:
        ids = [i for part in prepare(text) for i in encoding.encode(part, allowed_special="all", disallowed_special=())]
        encode.append(
            {
                "text": text,
                "ids": ids,
                "ids_with_special": ids,
                "decoded": decode(ids, False),
                "decoded_skip_special": decode(ids, True),
            }
        )
    flat = [i for case in encode[:40] for i in case["ids"]]
    lists = [list(range(min(vocab_size, encoding.n_vocab))), flat[::3], [200, 201, 202], []]
    cases = [{"ids": ids, "decoded": decode(ids, False), "decoded_skip_special": decode(ids, True)} for ids in lists]
    write_cases(directory, file, vocab_size, encode, cases)


def make_tiktoken(root):
    def path(name):
        return os.path.join(root, name)

    ranks = train_ranks(KIMI_PATTERN, 420)
    first = len(ranks)
    names = {
        first: "[BOS]",
        first + 1: "[EOS]",
        first + 2: "<|im_end|>",
        first + 3: "<|im_user|>",
        first + 10: "[EOT]",
        first + 11: "<|tool_call_begin|>",
        first + 254: "[UNK]",
        first + 255: "[PAD]",
    }
    plain_names = [first + 11]
    config = {
        "tokenizer_class": "TikTokenTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]},
        "bos_token": "[BOS]",
        "eos_token": "[EOS]",
        "unk_token": "[UNK]",
        "pad_token": "[PAD]",
        "additional_special_tokens": ["<|im_end|>", "<|im_user|>", "[EOT]"],
        "added_tokens_decoder": {str(i): added(name, special=i not in plain_names) for i, name in names.items()},
    }
    special = {names.get(i, "<|reserved_token_%d|>" % i): i for i in range(first, first + 256)}
    encoding = tiktoken.Encoding("kimi", pat_str=KIMI_PATTERN, mergeable_ranks=ranks, special_tokens=special)
    texts = [
        "<|im_user|>user<|im_end|>hi 你好[EOT]",
        "[BOS]a[EOS]",
        "<|reserved_token_%d|>x" % (first + 5),
        "<|tool_call_begin|>f",
        "[BOS",
        "日本Kanji漢字kana かな",
    ]
    tiktoken_kind(
        path("kimi"),
        "tiktoken.model",
        rank_lines(ranks),
        config,
        encoding,
        {i for i in special.values() if i not in plain_names},
        texts,
        first + 256,
        bounded,
    )

    ranks = train_ranks(DIGIT_PATTERN, 400)
    first = len(ranks)
    special = {
        name: first + i
        for i, name in enumerate(
            ["<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>"]
            + ["<|extra_%d|>" % i for i in range(205)]
        )
    }
    encoding = tiktoken.Encoding("hunyuan", pat_str=DIGIT_PATTERN, mergeable_ranks=ranks, special_tokens=special)
    lines = rank_lines(ranks).split("\n")
    lines.insert(300, lines[65])  # Left out, and not counted.
    config = {
        "tokenizer_class": "HYTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_hy.HYTokenizer", None]},
        "eos_token": "<|eos|>",
        "pad_token": "<|pad|>",
        "additional_special_tokens": ["<|startoftext|>", "<|extra_0|>"],
    }
    texts = ["<|startoftext|>hi<|extra_0|>", "<|extra_204|><|extra_205|>", "cafe\u0301<|eos|>"]
    tiktoken_kind(
        path("hunyuan"),
        "hy.tiktoken",
        "\n".join(lines),
        config,
        encoding,
        set(special.values()),
        texts,
        first + len(special),
        lambda text: [unicodedata.normalize("NFC", text)],
    )

    special = {
        name: first + i
        for i, name in enumerate(
            ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + ["<|extra_%d|>" % i for i in range(205)]
        )
    }
    encoding = tiktoken.Encoding("qwen", pat_str=DIGIT_PATTERN, mergeable_ranks=ranks, special_tokens=special)
    tiktoken_kind(
        path("qwen"),
        "qwen.tiktoken",
        rank_lines(ranks),
        None,
        encoding,
        set(special.values()),
        ["<|im_start|>user\nhi<|im_end|>\n"],
        first + len(special),
        lambda text: [unicodedata.normalize("NFC", text)],
    )

    # A file on its own, as transformers takes it.
    directory = path("tiktoken_default")
    pattern = DIGIT_PATTERN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
    ranks = train_ranks(pattern, 380)
    first = len(ranks)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|begin|>",
        "eos_token": "<|end|>",
        "add_bos_token": True,
        "added_tokens_decoder": {str(first + 1): added("<|begin|>"), str(first + 3): added("<|end|>")},
    }
    write(directory, "tiktoken.model", rank_lines(ranks))
    write_json(directory, "tokenizer_config.json", config)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(directory)
    encoding = tiktoken.Encoding("default", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    encode = []
    for text in TEXTS + ["<|begin|>a<|end|>", "<|reserved_token_%d|>x" % first, "<|begin|> <|begin|>"]:
        ids = tokenizer.encode(text, add_special_tokens=False)
        if "<|" not in text:
            assert ids == encoding.encode(text), text
        with_special = tokenizer.encode(text)
        encode.append(
            {
                "text": text,
                "ids": ids,
                "ids_with_special": with_special,
                "decoded": tokenizer.decode(ids),
                "decoded_skip_special": tokenizer.decode(with_special, skip_special_tokens=True),
            }
        )
    lists = [list(range(len(tokenizer))), [200, 201, 202], []]
    decode = [
        {
            "ids": ids,
            "decoded": tokenizer.decode(ids),
            "decoded_skip_special": tokenizer.decode(ids, skip_special_tokens=True),
        }
        for ids in lists
    ]
    write_cases(directory, "tiktoken.model", len(tokenizer), encode, decode)


if __name__ == "__main__":
    make_sentencepiece(sys.argv[1])
    make_tiktoken(sys.argv[1])
