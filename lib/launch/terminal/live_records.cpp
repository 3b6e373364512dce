#include "launch/terminal/live_records.hpp"

#include <algorithm>
#include <utility>

#include "base/live_progress.hpp"

namespace dslaunch::launch {

void LiveRecords::cut(std::string_view bytes, const Take& take) {
  while (!bytes.empty()) {
    if (record_.empty() && !(at_line_start_ && bytes.front() == live::kMark)) {
      // Text up to the next line that begins with the mark.
      size_t end = bytes.find(std::string{'\n', live::kMark});
      end = end == bytes.npos ? bytes.size() : end + 1;
      take(0, bytes.substr(0, end));
      at_line_start_ = bytes[end - 1] == '\n';
      bytes.remove_prefix(end);
      continue;
    }
    const size_t newline = bytes.find('\n');
    const size_t count = newline == bytes.npos ? bytes.size() : newline + 1;
    record_ += bytes.substr(0, count);
    bytes.remove_prefix(count);
    if (newline == bytes.npos) {
      if (record_.size() > kMaxRecordBytes) finish(take);
      return;
    }
    const std::string record = std::exchange(record_, {});
    at_line_start_ = true;
    if (record.size() < 3) {
      take(0, record);
    } else {
      take(record[1], std::string_view(record).substr(2, record.size() - 3));
    }
  }
}

void LiveRecords::finish(const Take& take) {
  const std::string text = std::exchange(record_, {});
  if (!text.empty()) take(0, text);
  at_line_start_ = text.empty() && at_line_start_;
}

}  // namespace dslaunch::launch
