// SPDX-License-Identifier: Apache-2.0
#include "lib/base/report/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string_view>

#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/base/report/atomic_file.hpp"
#include "lib/base/report/format.hpp"

namespace pecia::report {
namespace {

using std::chrono::nanoseconds;

double seconds_of(nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

double share(double part, double whole) {
  return whole > 0 ? std::clamp(part / whole, 0.0, 1.0) : 1.0;
}

std::optional<double> rate(int64_t tokens, double seconds) {
  if (!(seconds > 0)) return std::nullopt;
  return static_cast<double>(std::max<int64_t>(tokens, 0)) / seconds;
}

bool starts_code_point(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
}

/// The first `columns` characters of UTF-8 text.
std::string_view first_columns(std::string_view text, int columns) {
  size_t end = 0;
  for (; end < text.size(); ++end)
    if (starts_code_point(text[end]) && columns-- == 0) break;
  return text.substr(0, end);
}

}  // namespace

ProgressOptions progress_options_of(int fd) {
  ProgressOptions options;
  const char* terminal = std::getenv("TERM");
  const bool dumb = terminal == nullptr || std::string_view(terminal) == "dumb";
  if (isatty(fd) == 0 || dumb) return options;
  options.style = ProgressStyle::bar;
  options.colour = !is_set("NO_COLOR");
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) options.columns = size.ws_col;
  return options;
}

nanoseconds steady_time() {
  return std::chrono::duration_cast<nanoseconds>(
      std::chrono::steady_clock::now().time_since_epoch());
}

Progress::Progress(const ProgressTotals& totals, const ProgressState& start,
                   ProgressOptions options, std::ostream& out, MonotonicClock clock)
    : totals_(totals),
      options_(std::move(options)),
      out_(out),
      clock_(std::move(clock)),
      start_{clock_(), start},
      now_(start_),
      window_{start_} {
  PECIA_CHECK(options_.line_interval > nanoseconds::zero(), "a progress interval of {} ns",
              options_.line_interval.count());
  // The first line comes after `first_line`, when some work is done, or after a shorter interval.
  last_output_ =
      start_.time - options_.line_interval + std::min(options_.line_interval, first_line);
  if (options_.style == ProgressStyle::bar) last_output_ = start_.time;
}

void Progress::take_sample(const ProgressState& state) {
  now_ = {clock_(), state};
  // Closer samples than a hundredth of the window would only lengthen the list.
  if (now_.time - window_.back().time >= rate_window / 100) window_.push_back(now_);
  while (window_.size() > 1 && window_[1].time <= now_.time - rate_window) window_.pop_front();
}

void Progress::update(const ProgressState& state) {
  take_sample(state);
  const auto due = [&](const std::optional<nanoseconds>& last, nanoseconds interval) {
    return !last || now_.time - *last >= interval;
  };
  if (options_.style == ProgressStyle::bar && due(last_output_, bar_interval)) draw_bar();
  if (options_.style == ProgressStyle::lines && due(last_output_, options_.line_interval))
    write_line();
  if (!options_.file.empty() && due(last_file_, file_interval)) {
    write_file(false);
    last_file_ = now_.time;
  }
}

void Progress::finish(const ProgressState& state) {
  take_sample(state);
  window_ = {start_};
  if (options_.style == ProgressStyle::bar) {
    draw_bar();
    out_ << std::endl;
  }
  if (options_.style == ProgressStyle::lines) write_line();
  if (!options_.file.empty()) write_file(true);
}

std::optional<double> Progress::prefill_tokens_per_s() const {
  const ProgressState& then = window_.front().state;
  return rate(now_.state.prompt_tokens - then.prompt_tokens, now_.state.prefill_s - then.prefill_s);
}

std::optional<double> Progress::decode_tokens_per_s() const {
  const ProgressState& then = window_.front().state;
  return rate(now_.state.decode_tokens - then.decode_tokens, now_.state.decode_s - then.decode_s);
}

StartRecord Progress::own_start() const {
  StartRecord own = totals_.own;
  own.seconds += seconds_of(now_.time - start_.time);
  own.done = now_.state.turns_done - start_.state.turns_done;
  own.failed = now_.state.turns_failed - start_.state.turns_failed;
  own.prompt_tokens = now_.state.prompt_tokens - start_.state.prompt_tokens;
  own.output_tokens = now_.state.output_tokens - start_.state.output_tokens;
  return own;
}

std::optional<double> Progress::remaining_s() const {
  const double done_now = now_.state.work - start_.state.work;
  const double left = std::max(totals_.work - work_done(), 0.0);
  if (left == 0) return 0.0;
  if (!(done_now > 0)) return std::nullopt;
  const double elapsed_s = seconds_of(now_.time - start_.time);
  return std::max(left / done_now * elapsed_s, totals_.last_arrival_s - elapsed_s);
}

int64_t Progress::prompt_tokens_read() const {
  // A turn that is continued reads its prompt again.
  return std::min(now_.state.prompt_tokens + now_.state.restored_tokens, totals_.prompt_tokens);
}

double Progress::work_done() const {
  return now_.state.work + now_.state.restored_work;
}

std::string Progress::summary() const {
  const auto remaining = remaining_s();
  std::string text =
      now_.state.turns_arrived ? fmt::format("{} arrived · ", *now_.state.turns_arrived) : "";
  text += fmt::format("{} of {} tokens read · ",
                      format_count(static_cast<double>(prompt_tokens_read())),
                      format_count(static_cast<double>(totals_.prompt_tokens)));
  if (const auto speed = prefill_tokens_per_s())
    text += fmt::format("prefill {} tok/s · ", format_count(*speed));
  if (const auto speed = decode_tokens_per_s())
    text += fmt::format("decode {} tok/s · ", format_count(*speed));
  return text + (remaining ? format_duration(*remaining) + " left" : "time left unknown");
}

void Progress::draw_bar() {
  last_output_ = now_.time;
  const double done = share(work_done(), totals_.work);
  const std::string failed = fmt::format("{} failed", now_.state.turns_failed);
  const std::string before =
      fmt::format(" {:3.0f} %  {}/{} done, ", 100 * done, now_.state.turns_done, totals_.turns);
  const std::string after = " · " + summary();
  const auto columns_of = [](std::string_view text) {
    return static_cast<int>(std::ranges::count_if(text, starts_code_point));
  };
  const int text_columns = columns_of(before + failed + after);
  const int bar_columns = std::clamp(options_.columns - 1 - text_columns, 0, 30);
  const int filled = static_cast<int>(done * bar_columns);

  std::string line;
  for (int column = 0; column < bar_columns; ++column) line += column < filled ? "█" : "░";
  line += before;
  const size_t failed_at = line.size();
  line += failed + after;
  line = first_columns(line, options_.columns - 1);
  if (options_.colour && now_.state.turns_failed > 0 && failed_at + failed.size() <= line.size())
    line.replace(failed_at, failed.size(), "\x1b[31m" + failed + "\x1b[0m");
  out_ << '\r' << line << "\x1b[K" << std::flush;
}

void Progress::write_line() {
  last_output_ = now_.time;
  out_ << fmt::format(
              "pecia: {} of {} {} done, {} failed · {} of the work · {}\n", now_.state.turns_done,
              totals_.turns, totals_.turns == totals_.requests ? "requests" : "turns",
              now_.state.turns_failed, format_percent(share(work_done(), totals_.work)), summary())
       << std::flush;
}

void Progress::write_file(bool finished) const {
  // A folder that was moved or removed while the run goes on is not made again.
  if (!std::filesystem::is_directory(std::filesystem::absolute(options_.file).parent_path()))
    return;
  const auto remaining = remaining_s();
  nlohmann::ordered_json turns{{"total", totals_.turns},
                               {"done", now_.state.turns_done},
                               {"failed", now_.state.turns_failed}};
  if (now_.state.turns_arrived) turns["arrived"] = *now_.state.turns_arrived;
  auto starts = nlohmann::ordered_json::array();
  for (const StartRecord& start : totals_.earlier) starts.push_back(to_json(start));
  starts.push_back(to_json(own_start()));
  const nlohmann::ordered_json json{
      {"schema", "pecia.progress/1"},
      {"finished", finished},
      {"requests", totals_.requests},
      {"turns", turns},
      {"prompt_tokens", {{"total", totals_.prompt_tokens}, {"done", prompt_tokens_read()}}},
      {"output_tokens", now_.state.output_tokens},
      {"work_share", share(work_done(), totals_.work)},
      {"prefill_tokens_per_s", prefill_tokens_per_s().value_or(0)},
      {"decode_tokens_per_s", decode_tokens_per_s().value_or(0)},
      {"elapsed_s", seconds_of(now_.time - start_.time)},
      {"updated_unix_s", std::time(nullptr)},
      {"remaining_s", remaining ? nlohmann::ordered_json(*remaining) : nullptr},
      {"starts", starts}};
  write_atomically(options_.file, json_text(json, 2) + "\n");
}

}  // namespace pecia::report
