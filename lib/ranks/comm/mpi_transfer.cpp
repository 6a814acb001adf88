// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/mpi_transfer.hpp"

#include <algorithm>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/ranks/comm/wait.hpp"

namespace pecia::comm {
namespace {

template <typename F>
void for_messages(size_t bytes, F each) {
  for (size_t offset = 0; offset < bytes; offset += max_message_bytes)
    each(offset, static_cast<int>(std::min(max_message_bytes, bytes - offset)));
}

}  // namespace

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail<SystemError>("{} failed: {}", call, std::string(text, length));
}

MpiTransfer::MpiTransfer(Label label, std::chrono::seconds timeout,
                         std::shared_ptr<MpiCommon> common)
    : label_(std::move(label)), timeout_(timeout), common_(std::move(common)) {
  common_->polls.start();
}

MpiTransfer::~MpiTransfer() {
  common_->polls.finish();
  if (collective_) return;  // MPI cannot abandon collectives
  for (MPI_Request& request : requests_)
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
}

void MpiTransfer::send(std::span<const std::byte> bytes, int to, int tag, MPI_Comm comm) {
  for_messages(bytes.size(), [&](size_t offset, int count) {
    check_mpi(MPI_Isend(bytes.data() + offset, count, MPI_BYTE, to, tag, comm, add()), "MPI_Isend");
  });
}

void MpiTransfer::receive(std::span<std::byte> bytes, int from, int tag, MPI_Comm comm) {
  for_messages(bytes.size(), [&](size_t offset, int count) {
    check_mpi(MPI_Irecv(bytes.data() + offset, count, MPI_BYTE, from, tag, comm, add()),
              "MPI_Irecv");
  });
}

MPI_Request* MpiTransfer::add_collective() {
  collective_ = true;
  return add();
}

bool MpiTransfer::test() {
  if (requests_.empty()) return true;
  int done = 0;
  const int code =
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
  // After an error some requests are gone, and MPI does not say which, so none is touched again.
  if (done != 0 || code != MPI_SUCCESS) requests_.clear();
  if (code != MPI_SUCCESS) check_mpi(code, described().c_str());
  return done != 0;
}

void MpiTransfer::wait() {
  wait_until([this] { return test(); }, [this] { return described(); },
             [this](bool waits) {
               if (waits)
                 label_.series.show_wait(label_.operation, label_.number);
               else
                 label_.series.show_no_wait();
             },
             timeout_);
}

std::string MpiTransfer::described() const {
  return fmt::format("{} #{} with {}", label_.operation, label_.number, label_.peers);
}

}  // namespace pecia::comm
