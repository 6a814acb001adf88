// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/mailbox.hpp"

#include <span>
#include <utility>

namespace pecia::comm {

void Mailbox::send(std::vector<std::byte> message) {
  forget_sent();
  auto sent = std::make_unique<Sent>();
  sent->size = static_cast<int64_t>(message.size());
  sent->bytes = std::move(message);
  sent->of_size =
      group_.start_send_receive(std::as_bytes(std::span(&sent->size, 1)), other_, {}, other_);
  if (!sent->bytes.empty())
    sent->of_bytes = group_.start_send_receive(sent->bytes, other_, {}, other_);
  sent_.push_back(std::move(sent));
}

std::optional<std::vector<std::byte>> Mailbox::receive() {
  forget_sent();
  if (!of_size_ && !of_bytes_)
    of_size_ =
        group_.start_send_receive({}, other_, std::as_writable_bytes(std::span(&size_, 1)), other_);
  if (of_size_) {
    if (!of_size_->test()) return {};
    of_size_.reset();
    bytes_.resize(static_cast<size_t>(size_));
    if (bytes_.empty()) return std::move(bytes_);
    of_bytes_ = group_.start_send_receive({}, other_, bytes_, other_);
  }
  if (!of_bytes_->test()) return {};
  of_bytes_.reset();
  return std::move(bytes_);
}

void Mailbox::flush() {
  for (const auto& sent : sent_) {
    sent->of_size->wait();
    if (sent->of_bytes) sent->of_bytes->wait();
  }
  sent_.clear();
}

void Mailbox::forget_sent() {
  while (!sent_.empty() && sent_.front()->of_size->test() &&
         (!sent_.front()->of_bytes || sent_.front()->of_bytes->test()))
    sent_.pop_front();
}

}  // namespace pecia::comm
