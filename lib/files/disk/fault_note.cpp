// SPDX-License-Identifier: Apache-2.0
#include "lib/files/disk/fault_note.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>

namespace pecia::io {
namespace {

// The signal handler can only reach a global; it is set while a FaultNote lives.
std::atomic<const FaultNote*> current{nullptr};

}  // namespace

FaultNote::FaultNote(const std::filesystem::path& file)
    : text_(fmt::format("pecia: {}: HDF5 crashed on it, so the file is damaged; make it again\n",
                        file.string())),
      thread_(::gettid()) {
  current = this;
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  ::sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < numbers.size(); ++i) ::sigaction(numbers[i], &action, &before_[i]);
}

FaultNote::~FaultNote() {
  for (size_t i = 0; i < numbers.size(); ++i) ::sigaction(numbers[i], &before_[i], nullptr);
  current = nullptr;
}

void FaultNote::on_fault(int number, siginfo_t* info, void*) {
  const FaultNote* note = current;
  // The signal was sent by a process, or another thread faulted. Restore the default: the faulting
  // instruction runs again, or the signal is raised again, and ends the process as usual.
  if (note == nullptr || info->si_code <= 0 || ::gettid() != note->thread_) {
    ::signal(number, SIG_DFL);
    if (info->si_code <= 0) ::raise(number);
    return;
  }
  if (::write(STDERR_FILENO, note->text_.data(), note->text_.size()) < 0) ::_exit(1);
  ::_exit(2);
}

}  // namespace pecia::io
