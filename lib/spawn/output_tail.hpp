// Keeps the end of a program's output in bounded memory. One thread.
#pragma once
#include <string>
#include <string_view>

namespace dslaunch::spawn {

class OutputTail {
 public:
  explicit OutputTail(size_t max_bytes = 8192) : max_bytes_(max_bytes) {}

  void append(std::string_view bytes) {
    text_.append(bytes);
    if (text_.size() > 2 * max_bytes_) text_.erase(0, text_.size() - max_bytes_);
  }
  std::string text() const { return text_.size() > max_bytes_ ? text_.substr(text_.size() - max_bytes_) : text_; }
  void clear() { text_.clear(); }

 private:
  size_t max_bytes_;
  std::string text_;
};

}  // namespace dslaunch::spawn
