#include "lib/runtime/signals.hpp"

#include <csignal>
#include <initializer_list>

namespace pecia::runtime {
namespace {

// A signal handler can reach nothing else.
volatile std::sig_atomic_t received_signal = 0;

constexpr std::initializer_list<int> draining = {SIGTERM, SIGUSR1, SIGINT};

}  // namespace

DrainSignals::DrainSignals() {
  received_signal = 0;
  struct sigaction action {};
  action.sa_handler = [](int number) { received_signal = number; };
  for (const int number : draining) {
    action.sa_flags = SA_RESTART | (number == SIGINT ? SA_RESETHAND : 0);
    sigaction(number, &action, nullptr);
  }
  std::signal(SIGXFSZ, SIG_IGN);
}

DrainSignals::~DrainSignals() {
  for (const int number : draining) std::signal(number, SIG_DFL);
  std::signal(SIGXFSZ, SIG_DFL);
}

bool DrainSignals::received() {
  return received_signal != 0;
}

}  // namespace pecia::runtime
