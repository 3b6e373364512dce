#include "launch/terminal/line_splitter.hpp"

#include <utility>

namespace dslaunch::launch {

std::string LineSplitter::take(std::string_view bytes) {
  if (prefix_.empty()) return std::string(bytes);
  std::string shown;
  cut(bytes, [&](std::string_view line) { shown.append(prefix_).append(line); });
  return shown;
}

std::string LineSplitter::take(std::string_view bytes, bool& in_bar) {
  if (prefix_.empty()) return std::string(bytes);
  std::string shown;
  cut(bytes, [&](std::string_view line) {
    if (!in_bar) shown += prefix_;
    shown += line;
    in_bar = line.back() == '\r';
  });
  return shown;
}

void LineSplitter::cut(std::string_view bytes, const std::function<void(std::string_view line)>& on_line) {
  size_t searched = partial_.size();
  // A carriage return at the very end may have been the first half of "\r\n".
  if (searched > 0 && partial_.back() == '\r') --searched;
  partial_ += bytes;
  size_t begin = 0;
  for (size_t end; (end = partial_.find_first_of("\r\n", searched)) != std::string::npos; searched = begin) {
    if (partial_[end] == '\r') {
      if (end + 1 == partial_.size()) break;
      if (partial_[end + 1] == '\n') ++end;
    }
    on_line(std::string_view(partial_).substr(begin, end + 1 - begin));
    begin = end + 1;
  }
  partial_.erase(0, begin);
  if (partial_.size() > longest_bytes_) on_line(finish_line());
}

std::string LineSplitter::finish() {
  std::string line = finish_line();
  return line.empty() ? line : prefix_ + line;
}

std::string LineSplitter::finish_line() {
  if (partial_.empty()) return {};
  return std::exchange(partial_, {}) + "\n";
}

}  // namespace dslaunch::launch
