// Cuts a stream of bytes into prefixed lines, so that several ranks can share a terminal. A carriage return ends a
// piece too, so that progress bars move. Bytes pass unchanged, NUL included. One thread.
#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace dslaunch::launch {

class LineSplitter {
 public:
  // A line longer than `longest_bytes` is shown in pieces rather than kept, which bounds the memory that ranks can use.
  // An empty prefix: bytes pass at once, unchanged.
  explicit LineSplitter(std::string prefix, size_t longest_bytes = 64U << 20)
      : prefix_(std::move(prefix)), longest_bytes_(longest_bytes) {}

  // The complete lines that end in `bytes`, ready to be shown.
  std::string take(std::string_view bytes);
  // The same for a file or a pipe, where a piece does not cover the one before it: states of a progress bar have the
  // prefix once. `in_bar`: whether the bytes follow a piece of this stream that a carriage return has ended.
  std::string take(std::string_view bytes, bool& in_bar);
  // The same, line by line with its end and without the prefix.
  void cut(std::string_view bytes, const std::function<void(std::string_view line)>& on_line);
  // The rest of a last line without a newline; one is added so that the next line starts at the margin.
  std::string finish();
  // The same without the prefix.
  std::string finish_line();

 private:
  std::string prefix_, partial_;
  size_t longest_bytes_;
};

}  // namespace dslaunch::launch
