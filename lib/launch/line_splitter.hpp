// Cuts a stream of bytes into lines with a word in front, so that several ranks can share a terminal. A carriage return
// ends a piece too, so that progress bars move. Bytes pass unchanged, NUL included. One thread.
#pragma once
#include <string>
#include <string_view>

namespace dslaunch::launch {

class LineSplitter {
 public:
  // An empty prefix: bytes pass at once, as they are.
  explicit LineSplitter(std::string prefix) : prefix_(std::move(prefix)) {}

  // The whole lines that `bytes` completes, ready to be shown.
  std::string take(std::string_view bytes);
  // What is left of a last line without its end; a newline is added so that the next line starts at the margin.
  std::string finish();

 private:
  std::string prefix_, partial_;
};

}  // namespace dslaunch::launch
