// SPDX-License-Identifier: Apache-2.0
#include "lib/run/signals.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <initializer_list>

#include "lib/base/core/error.hpp"

namespace pecia::run {
namespace {

// A global variable, since a signal handler can reach nothing else.
volatile std::sig_atomic_t received_signal = 0;

constexpr std::initializer_list<int> draining = {SIGTERM, SIGUSR1, SIGINT, SIGPIPE};

/// The text that the handler writes for each signal. It is made in advance, as a handler cannot
/// make it, and the current text is never the one being made.
struct Words {
  std::array<std::array<char, 400>, draining.size()> by_signal{};
};
std::array<Words, 2> words;
std::atomic<const Words*> current_words = nullptr;

const char* name_of_signal(int number) {
  switch (number) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGPIPE:
      return "SIGPIPE";
    default:
      return "SIGUSR1";
  }
}

void on_signal(int number) {
  const bool first = received_signal == 0;
  received_signal = number;
  const Words* const text = current_words;
  if (!first || text == nullptr) return;
  const int saved = errno;
  size_t index = 0;
  for (const int each : draining) {
    if (each == number) break;
    ++index;
  }
  const char* const line = text->by_signal[index].data();
  [[maybe_unused]] const auto written = write(STDERR_FILENO, line, std::strlen(line));
  errno = saved;
}

}  // namespace

DrainSignals::DrainSignals() {
  received_signal = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int number : draining) {
    action.sa_flags = SA_RESTART | (number == SIGINT ? SA_RESETHAND : 0);
    sigaction(number, &action, nullptr);
  }
  std::signal(SIGXFSZ, SIG_IGN);
}

DrainSignals::~DrainSignals() {
  for (const int number : draining)
    std::signal(number, ignores_later_ones_ && number != SIGINT ? SIG_IGN : SIG_DFL);
  std::signal(SIGXFSZ, SIG_DFL);
  current_words = nullptr;
}

void DrainSignals::stops_after(std::string_view text) {
  Words& next = current_words == &words[0] ? words[1] : words[0];
  size_t index = 0;
  for (const int number : draining) {
    auto& line = next.by_signal[index++];
    const bool keyboard = number == SIGINT;
    // The text first ends a progress bar's line, also after a terminal's ^C.
    const auto end = fmt::format_to_n(
        line.data(), line.size() - 1,
        "{}pecia: {}: stops after {}; then what is generated is saved{}\n", keyboard ? "\n" : "",
        name_of_signal(number), text, keyboard ? ", a second Ctrl-C ends the run at once" : "");
    *end.out = '\0';
  }
  current_words = &next;
}

bool DrainSignals::received() {
  return received_signal != 0;
}

}  // namespace pecia::run
