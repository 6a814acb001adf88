# SPDX-License-Identifier: Apache-2.0
import resource
import signal
from unittest import mock

from pecia_tools.model_folder import ModelFolder
from pecia_tools.pack.chat import ChatTemplate
from support import CHATML, ScriptTest, make_model

LLAMA2 = (
    "{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ bos_token + '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'] | trim + ' ' + eos_token }}{% endif %}{% endfor %}"
)
REWRITES_HISTORY = (
    "{% for message in messages %}{% if message['role'] == 'assistant' and not loop.last %}"
    "<|im_start|>earlier {{ message['content'] }}<|im_end|>"
    "{% else %}{{ message['content'] }}<|im_end|>{% endif %}{% endfor %}"
    "{{ '<|im_start|>assistant' }}"
)


class ChatTest(ScriptTest):
    def chat(self, template: str) -> ChatTemplate:
        return ChatTemplate(ModelFolder(make_model(self.folder / "model", template)))


class Rendering(ChatTest):
    def test_blocks_are_trimmed_as_in_transformers(self) -> None:
        template = "  {% for m in messages %}\n<{{ m['content'] }}>\n  {% endfor %}\nend"
        self.assertEqual(self.chat(template).render([{"role": "user", "content": "a"}]), "<a>\nend")

    def test_extensions_of_transformers(self) -> None:
        template = (
            "{% generation %}{{ messages | tojson }}{% endgeneration %}"
            "{% for m in messages %}{% break %}{% endfor %}{{ strftime_now('%%') }}"
        )
        text = self.chat(template).render([{"role": "user", "content": "<é>"}])
        self.assertEqual(text, '[{"role": "user", "content": "<é>"}]%')

    def test_refusal_of_the_template_is_told(self) -> None:
        chat = self.chat("{{ raise_exception('no system messages') }}")
        self.assert_refused("no system messages", call=lambda: chat.render([]))

    def test_sandbox_holds(self) -> None:
        chat = self.chat("{{ messages.__class__.__mro__ }}")
        self.assert_refused("refuses", call=lambda: chat.render([]))

    def test_time_memory_and_length_are_bounded(self) -> None:
        loop = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
        doubled = (
            "{% set n = namespace(x='xxxxxxxx') %}{% for i in range(50) %}{% set n.x = n.x ~ n.x %}"
            "{% endfor %}{{ n.x }}"
        )
        with mock.patch("pecia_tools.pack.chat.RENDER_LIMIT_S", 2):
            for template, says in (
                (loop, "does not end"),
                ("{% set n = messages | length %}{{ 'x' * (n + 10 ** 11) }}", "MiB of memory"),
                (doubled, "the chat template of"),  # time or memory, whichever ends first
                ("{{ 'x' * ((messages | length) + 20000000) }}", "makes 20000000 characters of 0"),
            ):
                with self.subTest(template):
                    chat = self.chat(template)
                    self.assert_refused(says, call=lambda chat=chat: chat.render([]))
        self.assertEqual(signal.getitimer(signal.ITIMER_REAL)[0], 0)
        self.assertEqual(resource.getrlimit(resource.RLIMIT_AS)[0], resource.RLIM_INFINITY)

    def test_whatever_a_template_raises_is_a_refusal(self) -> None:
        chat = self.chat("{{ 1 // 0 }}")
        self.assert_refused("ZeroDivisionError", call=lambda: chat.render([]))

    def test_syntax_error_names_the_line(self) -> None:
        self.assert_refused("line 2", call=lambda: self.chat("\n{% if %}"))

    def test_template_file_wins(self) -> None:
        folder = make_model(self.folder / "model")
        (folder / "chat_template.jinja").write_text("file", encoding="utf-8")
        self.assertEqual(ChatTemplate(ModelFolder(folder)).render([]), "file")

    def test_model_without_template_is_refused(self) -> None:
        folder = make_model(self.folder / "model", None)
        self.assert_refused("--no-chat", call=lambda: ChatTemplate(ModelFolder(folder)))


class Chain(ChatTest):
    def test_later_turn_begins_with_the_end_of_the_answer(self) -> None:
        texts = self.chat(CHATML).chain(
            [{"role": "system", "content": "s"}], ["one", "two", "three"]
        )
        self.assertEqual(
            texts,
            [
                "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\n",
                "<|im_end|>\n<|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\n",
                "<|im_end|>\n<|im_start|>user\nthree<|im_end|>\n<|im_start|>assistant\n",
            ],
        )

    def test_space_around_answers_is_the_models_to_write(self) -> None:
        texts = self.chat(LLAMA2).chain([], ["one", "two"])
        self.assertEqual(texts, ["<s>[INST] one [/INST]", "<|im_end|><s>[INST] two [/INST]"])

    def test_user_text_that_looks_like_a_mark_does_no_harm(self) -> None:
        texts = self.chat(CHATML).chain([], ["PeciaAnswer0x", "two"])
        self.assertIn("PeciaAnswer0x", texts[0])
        self.assertTrue(texts[1].startswith("<|im_end|>\n<|im_start|>user\ntwo"))

    def test_template_that_rewrites_earlier_turns_is_refused(self) -> None:
        chat = self.chat(REWRITES_HISTORY)
        self.assert_refused(
            "changes earlier turns",
            "separate requests",
            call=lambda: chat.chain([], ["one", "two"]),
        )


class Variables(ChatTest):
    THINKS = (
        "{%- if effort is not defined %}{% set effort = 'medium' %}{% endif %}"
        "{{ effort }}{% if enable_thinking is defined and not enable_thinking %} quick{% endif %}"
    )

    def test_reach_the_template(self) -> None:
        chat = self.chat(self.THINKS)
        self.assertEqual(chat.render([]), "medium")
        self.assertEqual(chat.render([], {"effort": "low", "enable_thinking": False}), "low quick")

    def test_one_that_the_template_does_not_use_is_refused(self) -> None:
        chat = self.chat(self.THINKS)
        self.assert_refused(
            "does not use 'enable_thinkng'; did you mean 'enable_thinking'?",
            call=lambda: chat.render([], {"enable_thinkng": False}),
        )

    def test_value_that_the_template_cannot_use(self) -> None:
        chat = self.chat("{{ level + 1 }}")
        self.assert_refused("fails with these messages", call=lambda: chat.render([], {"level": "x"}))


class Continued(ChatTest):
    MESSAGES = (
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "So it "},
    )

    def test_ends_with_the_message(self) -> None:
        text = self.chat(CHATML).render_continued(list(self.MESSAGES))
        self.assertEqual(text, "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\nSo it ")

    def test_template_that_changes_the_message_is_refused(self) -> None:
        chat = self.chat("{% for m in messages %}{{ m['content'] | upper }}{% endfor %}")
        self.assert_refused(
            "cannot be continued", call=lambda: chat.render_continued(list(self.MESSAGES))
        )
