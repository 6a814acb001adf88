# SPDX-License-Identifier: Apache-2.0
"""A tokenizer.json that would make gigabytes of a short text is refused."""


from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors

from pecia_tools.model_folder import ModelFolder
from pecia_tools.pack.token_offsets import encode_texts
from pecia_tools.tokenizer_limits import check_tokenizer
from support import ScriptTest, make_model, make_tokenizer


class TokenizerLimits(ScriptTest):
    def refuse(self, tokenizer: Tokenizer, says: str) -> None:
        self.assert_refused(
            "tokenizer.json", says, call=lambda: check_tokenizer(tokenizer, "tokenizer.json")
        )

    def test_tokenizers_of_models_pass(self) -> None:
        tokenizer = make_tokenizer()
        check_tokenizer(tokenizer, "")
        tokenizer.normalizer = normalizers.Sequence(
            [
                normalizers.Prepend("\u2581"),
                normalizers.Replace(" ", "\u2581"),
                normalizers.Replace("…", "..."),
                normalizers.Replace("½", "1/2"),
                normalizers.Replace(Regex(" {2,}"), " "),
            ]
        )
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
        )
        check_tokenizer(tokenizer, "")

    def test_replacements_that_multiply_a_text(self) -> None:
        ten = [(chr(97 + i), chr(98 + i) * 10) for i in range(10)]
        for what, says in (
            ([("a", "b" * 2000)], "a text of 2000 characters"),
            ([("a", "b" * 1000)], "more than 64 characters of one"),
            (ten, "more than 64 characters of one"),
            ([("a", "b" * 10), (Regex("."), "c" * 10)], "more than 64 characters of one"),
        ):
            tokenizer = make_tokenizer()
            tokenizer.normalizer = normalizers.Sequence([normalizers.Replace(*one) for one in what])
            self.refuse(tokenizer, f"its normalizer {'puts' if '2000' in says else 'makes'}")
            self.refuse(tokenizer, says)
            tokenizer = make_tokenizer()
            tokenizer.decoder = decoders.Sequence([decoders.Replace(*one) for one in what])
            self.refuse(tokenizer, "its decoder")

    def test_long_tokens_expressions_and_templates(self) -> None:
        tokenizer = make_tokenizer()
        tokenizer.add_tokens(["x" * 5000])
        self.refuse(tokenizer, "a token has 5000 characters")
        tokenizer = make_tokenizer()
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("a|" * 10_000), "isolated")
        self.refuse(tokenizer, "a regular expression of 20000 characters")
        tokenizer = make_tokenizer()
        tokenizer.post_processor = processors.TemplateProcessing(
            "<s> " * 2000 + "$A", special_tokens=[("<s>", 1)]
        )
        self.refuse(tokenizer, "puts 2000 special tokens around each text")

    def test_model_folder_checks(self) -> None:
        folder = make_model(self.folder / "model")
        tokenizer = make_tokenizer()
        tokenizer.decoder = decoders.Replace("a", "b" * 2000)
        tokenizer.save(str(folder / "tokenizer.json"))
        self.assert_refused("tokenizer.json: its decoder puts", call=lambda: ModelFolder(folder))

    def test_expression_that_backtracks_without_end_is_an_error_that_is_told(self) -> None:
        tokenizer = make_tokenizer()
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")
        self.assert_refused(
            "the tokenizer of the model fails with a text",
            call=lambda: encode_texts(tokenizer, ["a" * 50 + "b"], False),
        )
