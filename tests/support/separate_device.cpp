// SPDX-License-Identifier: Apache-2.0
#include "tests/support/separate_device.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <set>

#include "tests/support/late_stream.hpp"

namespace pecia::test {
namespace {

using device::Memory;

class SeparateStream;

/// Addresses that may be touched only while open. Memory that is given back is not used again, so
/// that who still uses it is found out.
class Arena {
 public:
  Arena() {
    void* const begin =
        ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) fail<SystemError>("no addresses for a separate device");
    begin_ = static_cast<std::byte*>(begin);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() { ::munmap(begin_, size); }

  bool contains(const void* data) const {
    const auto* const at = static_cast<const std::byte*>(data);
    return at >= begin_ && at < begin_ + size;
  }
  std::byte* allocate(int64_t bytes) {
    const int64_t rounded = (bytes + page - 1) / page * page;
    if (used_ + rounded > size) fail<SystemError>("a separate device has no {} bytes left", bytes);
    std::byte* const data = begin_ + used_;
    used_ += rounded;
    blocks_[data] = rounded;
    return data;
  }
  int64_t held() const {
    int64_t bytes = 0;
    for (const auto& [data, block_bytes] : blocks_) bytes += block_bytes;
    return bytes;
  }
  void free(std::byte* data) noexcept {
    const auto block = blocks_.find(data);
    ::madvise(data, block->second, MADV_DONTNEED);
    blocks_.erase(block);
  }
  std::set<SeparateStream*> streams;
  std::function<void()> before_work;

  /// In pairs, which may be nested.
  void open() {
    if (opened_++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  void close() {
    if (--opened_ == 0) protect(PROT_NONE);
  }

 private:
  static constexpr int64_t size = int64_t{64} << 30, page = 4096;

  void protect(int rights) {
    for (const auto& [data, bytes] : blocks_) ::mprotect(data, bytes, rights);
  }

  std::byte* begin_;
  int64_t used_ = 0;
  int opened_ = 0;
  std::map<std::byte*, int64_t> blocks_;
};

class SeparateStream : public LateStream {
 public:
  using Work = std::function<void()>;

  explicit SeparateStream(Arena& arena) : arena_(arena) { arena_.streams.insert(this); }
  SeparateStream(const SeparateStream&) = delete;
  SeparateStream& operator=(const SeparateStream&) = delete;
  ~SeparateStream() override { arena_.streams.erase(this); }

  int64_t enqueued() {
    end_segment();
    return done_ + static_cast<int64_t>(queue_.size());
  }
  int64_t done() const { return done_; }

  /// Of the device's clock, when the first `count` pieces of work were done.
  int64_t time_ns(int64_t count) const { return times_ns_[count]; }
  void wait_for(SeparateStream& from, int64_t count) {
    enqueue([this, &from, count] {
      from.run_until(count);
      // After both, and waiting is no work.
      now_ns_ = std::max(now_ns_ - separate_work_ns, from.time_ns(count));
    });
  }

  void synchronize() override { run_until(enqueued()); }
  void run_until(int64_t count) {
    if (count <= done_) return;
    if (arena_.before_work) arena_.before_work();
    arena_.open();
    while (done_ < count) {
      const Work work = std::move(queue_.front());
      queue_.pop_front();
      ++done_;
      now_ns_ += separate_work_ns;
      work();
      times_ns_.push_back(now_ns_);
    }
    arena_.close();
  }

 private:
  void put(Work work) override { queue_.push_back(std::move(work)); }

  Arena& arena_;
  std::deque<Work> queue_;
  int64_t done_ = 0, now_ns_ = 0;
  std::vector<int64_t> times_ns_ = {0};  ///< by the number of pieces done
};

SeparateStream& own(device::Stream& stream) {
  return dynamic_cast<SeparateStream&>(stream);
}

class SeparateEvent : public device::Event {
 public:
  void record(device::Stream& stream) override {
    stream_ = &own(stream);
    mark_ = stream_->enqueued();
  }
  void make_wait(device::Stream& stream) override {
    if (stream_ == nullptr || stream_ == &stream) return;
    own(stream).wait_for(*stream_, mark_);
  }
  bool done() const override { return stream_ == nullptr || stream_->done() >= mark_; }
  void synchronize() override {
    if (stream_ != nullptr) stream_->run_until(mark_);
  }
  double seconds_since(const device::Event& earlier) const override {
    return 1e-9 *
           static_cast<double>(time_ns() - dynamic_cast<const SeparateEvent&>(earlier).time_ns());
  }

 private:
  int64_t time_ns() const {
    PECIA_CHECK(stream_ != nullptr && done(), "the time of a mark that is not reached");
    return stream_->time_ns(mark_);
  }

  SeparateStream* stream_ = nullptr;
  int64_t mark_ = 0;
};

class SeparateDevice : public device::Device {
 public:
  explicit SeparateDevice(SeparateSettings settings)
      : info_(std::move(settings.info)), memory_bytes_(settings.memory_bytes) {
    arena_.before_work = std::move(settings.before_work);
  }

  const device::DeviceInfo& info() const override { return info_; }
  device::MemoryInfo memory() const override {
    return {memory_bytes_ - arena_.held(), memory_bytes_};
  }

  std::unique_ptr<device::Stream> make_stream() override {
    return std::make_unique<SeparateStream>(arena_);
  }
  std::unique_ptr<device::Event> make_event() override { return std::make_unique<SeparateEvent>(); }

  void copy(void* to, const void* from, int64_t bytes, device::Stream& stream) override {
    copy_rows(to, bytes, from, bytes, bytes, 1, stream);
  }
  void copy_rows(void* to, int64_t to_pitch, const void* from, int64_t from_pitch,
                 int64_t row_bytes, int64_t rows, device::Stream& stream) override {
    if (row_bytes == 0 || rows == 0) return;
    const auto copy_from = [=](const std::byte* source) {
      for (int64_t row = 0; row < rows; ++row)
        std::memcpy(static_cast<std::byte*>(to) + row * to_pitch, source + row * from_pitch,
                    row_bytes);
    };
    if (stays(from) && stays(to))
      return own(stream).submit([=] { copy_from(static_cast<const std::byte*>(from)); }, to,
                                to_pitch, from, from_pitch, row_bytes, rows);
    std::shared_ptr<std::vector<std::byte>> kept;
    if (!stays(from)) {
      const auto* const begin = static_cast<const std::byte*>(from);
      kept = std::make_shared<std::vector<std::byte>>(begin,
                                                      begin + (rows - 1) * from_pitch + row_bytes);
    }
    own(stream).enqueue(
        [=] { copy_from(kept ? kept->data() : static_cast<const std::byte*>(from)); });
    if (!stays(to)) stream.synchronize();
  }
  void zero(void* data, int64_t bytes, device::Stream& stream) override {
    own(stream).submit(
        [=] {
          if (bytes > 0) std::memset(data, 0, bytes);
        },
        data, bytes);
  }

  void settle() {
    for (SeparateStream* stream : arena_.streams) stream->synchronize();
  }

  std::byte* allocate(Memory memory, int64_t bytes) override {
    if (memory == Memory::device) return arena_.allocate(bytes);
    std::byte* const data = host_->allocate(memory, bytes);
    if (memory == Memory::pinned) pinned_[data] = bytes;
    return data;
  }
  void free(Memory memory, std::byte* data) noexcept override {
    try {
      settle();
    } catch (const Error&) {
      // It is lost, as the next call that may throw will say.
    }
    if (memory == Memory::device) return arena_.free(data);
    pinned_.erase(data);
    host_->free(memory, data);
  }

 private:
  /// Not pageable.
  bool stays(const void* data) const {
    if (arena_.contains(data)) return true;
    auto block = pinned_.upper_bound(static_cast<const std::byte*>(data));
    if (block == pinned_.begin()) return false;
    --block;
    return static_cast<const std::byte*>(data) < block->first + block->second;
  }

  device::DeviceInfo info_;
  int64_t memory_bytes_;
  Arena arena_;
  std::map<const std::byte*, int64_t> pinned_;
  std::unique_ptr<device::Device> host_ = device::make_host_device(1);
};

/// Enqueues the CPU's ops with copies of their host arrays.
class SeparateBackend : public kernels::Backend {
 public:
  explicit SeparateBackend(std::function<bool(const kernels::LinearArgs&)> is_made)
      : is_made_(std::move(is_made)) {}

  std::string_view name() const override { return "separate"; }
  std::string attention_library() const override { return "none: a separate device has none"; }
  bool continues_attention() const override { return cpu_->continues_attention(); }

  void embedding(const kernels::EmbeddingArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, later = args, tokens = kept(args.tokens)]() mutable {
      later.tokens = tokens;
      cpu_->embedding(later, cpu_stream_);
    });
  }
  void linear(const kernels::LinearArgs& args, device::Stream& stream) override {
    if (is_made_ && !is_made_(args)) return;
    own(stream).enqueue([this, args] { cpu_->linear(args, cpu_stream_); });
  }
  void quantize_rows(const kernels::QuantizeRowsArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, args] { cpu_->quantize_rows(args, cpu_stream_); });
  }
  void add(const kernels::AddArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, args] { cpu_->add(args, cpu_stream_); });
  }
  void mask_tokens(const kernels::MaskTokensArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, later = args, words = kept(args.words)]() mutable {
      later.words = words;
      cpu_->mask_tokens(later, cpu_stream_);
    });
  }
  void cast(const kernels::CastArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, args] { cpu_->cast(args, cpu_stream_); });
  }
  void square_sums(const kernels::SquareSumsArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, args] { cpu_->square_sums(args, cpu_stream_); });
  }
  void sum_rows(const kernels::SumRowsArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, later = args, which = kept(args.which)]() mutable {
      later.which = which;
      cpu_->sum_rows(later, cpu_stream_);
    });
  }
  void rms_norm(const kernels::RmsNormArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, args] { cpu_->rms_norm(args, cpu_stream_); });
  }
  void rope(const kernels::RopeArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, args] { cpu_->rope(args, cpu_stream_); });
  }
  void rope_tables(const kernels::RopeTablesArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, later = args, positions = kept(args.positions),
                         sets = kept(args.sets), frequencies = kept(args.frequencies),
                         factors = kept(args.factors)]() mutable {
      later.positions = positions;
      later.sets = sets;
      later.frequencies = frequencies;
      later.factors = factors;
      cpu_->rope_tables(later, cpu_stream_);
    });
  }
  void kv_store(const kernels::KvStoreArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, later = args, slots = kept(args.slots)]() mutable {
      later.slots = slots;
      cpu_->kv_store(later, cpu_stream_);
    });
  }
  void attention(const kernels::AttentionArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, later = args, rows = kept(args.query_positions),
                         items = kept(args.items), runs = kept(args.runs)]() mutable {
      later.query_positions = rows;
      later.items = items;
      later.runs = runs;
      cpu_->attention(later, cpu_stream_);
    });
  }
  void column_sums(const kernels::ColumnSumsArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, later = args, rows = kept(args.query_positions)]() mutable {
      later.query_positions = rows;
      cpu_->column_sums(later, cpu_stream_);
    });
  }
  void merge(const kernels::MergeArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, later = args, rows = kept(args.rows)]() mutable {
      later.rows = rows;
      cpu_->merge(later, cpu_stream_);
    });
  }
  void merge_picked(const kernels::MergePickedArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, later = args, parts = kept(args.parts)]() mutable {
      later.parts = parts;
      cpu_->merge_picked(later, cpu_stream_);
    });
  }
  void kept_order(const kernels::KeptOrderArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, later = args, items = kept(args.items), counts = kept(args.counts),
                         runs = kept(args.runs)]() mutable {
      later.items = items;
      later.counts = counts;
      later.runs = runs;
      cpu_->kept_order(later, cpu_stream_);
    });
  }
  void pick_rows(const kernels::PickRowsArgs& args, device::Stream& stream) override {
    own(stream).enqueue(
        [this, picks = kept(args.picks)] { cpu_->pick_rows({picks}, cpu_stream_); });
  }
  void row_need(const kernels::RowNeedArgs& args, device::Stream& stream) override {
    own(stream).enqueue(
        [this, later = args, always = kept(args.always), lists = kept(args.lists)]() mutable {
          later.always = always;
          later.lists = lists;
          cpu_->row_need(later, cpu_stream_);
        });
  }
  void gated_activation(const kernels::GatedActivationArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, args] { cpu_->gated_activation(args, cpu_stream_); });
  }
  void soft_cap(const kernels::SoftCapArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, args] { cpu_->soft_cap(args, cpu_stream_); });
  }
  void xielu(const kernels::XieluArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, args] { cpu_->xielu(args, cpu_stream_); });
  }
  void causal_conv(const kernels::CausalConvArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, later = args, items = kept(args.items)]() mutable {
      later.items = items;
      cpu_->causal_conv(later, cpu_stream_);
    });
  }
  void recurrence_gates(const kernels::RecurrenceGatesArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, args] { cpu_->recurrence_gates(args, cpu_stream_); });
  }
  void recurrence(const kernels::RecurrenceArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, later = args, items = kept(args.items)]() mutable {
      later.items = items;
      cpu_->recurrence(later, cpu_stream_);
    });
  }
  void route(const kernels::RouteArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, args] { cpu_->route(args, cpu_stream_); });
  }
  void experts(const kernels::ExpertsArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, later = args, matrices = kept(args.experts)]() mutable {
      later.experts = matrices;
      cpu_->experts(later, cpu_stream_);
    });
  }
  // Their answers are on the host.
  void sample(const kernels::SamplingArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, args] { cpu_->sample(args, cpu_stream_); });
    stream.synchronize();
  }
  void log_probs(const kernels::LogProbsArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, args] { cpu_->log_probs(args, cpu_stream_); });
    stream.synchronize();
  }
  void shortlist(const kernels::ShortlistArgs& args, device::Stream& stream) override {
    own(stream).enqueue([this, args] { cpu_->shortlist(args, cpu_stream_); });
    stream.synchronize();
  }

 private:
  template <typename T>
  static std::vector<T> kept(std::span<const T> values) {
    return {values.begin(), values.end()};
  }

  std::function<bool(const kernels::LinearArgs&)> is_made_;
  std::unique_ptr<kernels::Backend> cpu_ = kernels::make_cpu_backend();
  device::Stream cpu_stream_;
};

}  // namespace

std::unique_ptr<device::Device> make_separate_device(SeparateSettings settings) {
  return std::make_unique<SeparateDevice>(std::move(settings));
}

void settle(device::Device& device) {
  dynamic_cast<SeparateDevice&>(device).settle();
}

std::unique_ptr<kernels::Backend> make_separate_backend(
    std::function<bool(const kernels::LinearArgs&)> is_made) {
  return std::make_unique<SeparateBackend>(std::move(is_made));
}

}  // namespace pecia::test
