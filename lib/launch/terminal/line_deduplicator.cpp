#include "launch/terminal/line_deduplicator.hpp"

#include <algorithm>

#include "base/format.hpp"

namespace dslaunch::launch {
namespace {

// A flood of different lines is shown at once rather than kept and searched.
constexpr size_t kMaxWaiting = 256;
constexpr size_t kMaxWaitingBytes = 256U << 10;

constexpr std::string_view kError = "error: ";

// What "error: rank 3 on h: TEXT during all_gather ..." repeats of another rank's "error: TEXT"; empty for other lines.
std::string_view repeated_by(std::string_view line) {
  constexpr std::string_view kRank = "error: rank ", kHost = " on ";
  if (!line.starts_with(kRank)) return {};
  const auto digits = std::min(line.find_first_not_of("0123456789", kRank.size()), line.size());
  const auto text = line.find(": ", digits);
  if (digits == kRank.size() || !line.substr(digits).starts_with(kHost) || text == line.npos) return {};
  return line.substr(text + 2);
}

bool repeats(std::string_view line, std::string_view error) {
  error = error.substr(std::min(kError.size(), error.size()));
  while (!error.empty() && (error.back() == '\n' || error.back() == '\r')) error.remove_suffix(1);
  return !error.empty() && repeated_by(line).starts_with(error);
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// But for how many digits a number has, and which.
bool equal_without_numbers(std::string_view a, std::string_view b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      while (i < a.size() && is_digit(a[i])) ++i;
      while (j < b.size() && is_digit(b[j])) ++j;
    } else if (a[i++] != b[j++]) {
      return false;
    }
  }
  return i == a.size() && j == b.size();
}

// Of two errors: what makes them one on the terminal.
bool is_same_error(std::string_view a, std::string_view b) {
  if (!a.starts_with(kError) || !b.starts_with(kError)) return false;
  return equal_without_numbers(a, b) || repeats(a, b) || repeats(b, a);
}

}  // namespace

std::string rank_ranges(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) text += ", ";
    text += last == i ? std::to_string(ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return text;
}

void LineDeduplicator::add(int rank, Stream stream, std::string_view line, Time now) {
  Group* group = group_for(rank, stream, line);
  if (group == nullptr) {
    const auto window = line.starts_with(kError) ? kErrorWindow : kWindow;
    group = &waiting_.emplace_back(Group{stream, std::string(line), {}, now + window, rank});
    waiting_bytes_ += line.size();
  }
  if (repeats(group->line, line)) {
    waiting_bytes_ += line.size();
    waiting_bytes_ -= group->line.size();
    group->line = line;
    group->first = rank;
  } else if (group->line != line && !repeats(line, group->line)) {
    group->numbers_differ = true;
  }
  group->ranks.insert(std::lower_bound(group->ranks.begin(), group->ranks.end(), rank), rank);
}

// An equal line, or error, behind all lines that this rank already has waiting: joining it reorders nothing.
LineDeduplicator::Group* LineDeduplicator::group_for(int rank, Stream stream, std::string_view line) {
  Group* first = nullptr;
  for (auto group = waiting_.rbegin(); group != waiting_.rend(); ++group) {
    if (std::binary_search(group->ranks.begin(), group->ranks.end(), rank)) break;
    const bool is_same = group->line == line || is_same_error(group->line, line);
    if (group->stream == stream && is_same) first = &*group;
  }
  return first;
}

void LineDeduplicator::rank_ended(int rank) {
  has_ended_[static_cast<size_t>(rank)] = true;
  --num_writing_;
}

bool LineDeduplicator::is_complete(const Group& group) const {
  const auto num_living = std::count_if(group.ranks.begin(), group.ranks.end(),
                                        [this](int rank) { return !has_ended_[static_cast<size_t>(rank)]; });
  return num_living >= num_writing_;
}

std::vector<LineDeduplicator::Shown> LineDeduplicator::take(Time now) {
  std::vector<Shown> shown;
  while (!waiting_.empty()) {
    const Group& first = waiting_.front();
    bool crowded = waiting_.size() > kMaxWaiting || waiting_bytes_ > kMaxWaitingBytes;
    if (!is_complete(first) && !crowded && now < first.until) break;
    waiting_bytes_ -= first.line.size();
    shown.push_back(show(std::move(waiting_.front())));
    waiting_.pop_front();
  }
  return shown;
}

std::vector<LineDeduplicator::Shown> LineDeduplicator::take_all() {
  return take(Time::max());
}

Deadline LineDeduplicator::next(Time now) const {
  if (waiting_.empty()) return Deadline::never();
  auto left = waiting_.front().until - now;
  return Deadline::after(std::max(std::chrono::ceil<std::chrono::milliseconds>(left), std::chrono::milliseconds(0)));
}

LineDeduplicator::Shown LineDeduplicator::show(Group group) const {
  bool alone = group.ranks.size() == 1;
  std::string front =
      alone ? prefixes_[static_cast<size_t>(group.ranks[0])] : fmt::format("[ranks {}] ", rank_ranges(group.ranks));
  if (!group.numbers_differ) return {group.stream, front + std::move(group.line)};
  while (!group.line.empty() && (group.line.back() == '\n' || group.line.back() == '\r')) group.line.pop_back();
  return {group.stream, fmt::format("{}{} (numbers of rank {})\n", front, group.line, group.first)};
}

}  // namespace dslaunch::launch
