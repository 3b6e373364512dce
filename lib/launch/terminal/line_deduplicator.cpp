#include "launch/terminal/line_deduplicator.hpp"

#include <algorithm>

#include "base/format.hpp"

namespace dslaunch::launch {
namespace {

// A flood of different lines is shown at once rather than kept and searched.
constexpr size_t kMaxWaiting = 256;
constexpr size_t kMaxWaitingBytes = 256U << 10;

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
    const auto window = line.starts_with("error: ") ? kErrorWindow : kWindow;
    group = &waiting_.emplace_back(Group{stream, std::string(line), {}, now + window});
    waiting_bytes_ += line.size();
  }
  group->ranks.insert(std::lower_bound(group->ranks.begin(), group->ranks.end(), rank), rank);
}

// An equal line behind all lines that this rank already has waiting: joining it reorders nothing.
LineDeduplicator::Group* LineDeduplicator::group_for(int rank, Stream stream, std::string_view line) {
  Group* first = nullptr;
  for (auto group = waiting_.rbegin(); group != waiting_.rend(); ++group) {
    if (std::binary_search(group->ranks.begin(), group->ranks.end(), rank)) break;
    if (group->stream == stream && group->line == line) first = &*group;
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
  return {group.stream, front + std::move(group.line)};
}

}  // namespace dslaunch::launch
