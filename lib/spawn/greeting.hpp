// Strips the output that precedes a program's own first byte: a login shell's greeting, the output of a .bashrc. The
// program's output begins with a mark; everything before it is removed, and its end is kept for a message. One thread.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "spawn/output_tail.hpp"

namespace dslaunch::spawn {

class Greeting {
 public:
  // `preamble`: bytes that no greeting contains, such as a text with a NUL. The mark is removed too.
  explicit Greeting(std::string preamble) : preamble_(std::move(preamble)) {}

  // Returns the program's own part of the bytes that have just arrived.
  std::string pass(std::string_view bytes) {
    if (over_) return std::string(bytes);
    held_ += bytes;
    if (auto at = held_.find(preamble_); at != std::string::npos) {
      over_ = true;
      noise_.append(std::string_view(held_).substr(0, at));
      return held_.substr(at + preamble_.size());
    }
    // Keep the last bytes: they may be the beginning of the mark.
    size_t num_noise = held_.size() - std::min(held_.size(), preamble_.size() - 1);
    noise_.append(std::string_view(held_).substr(0, num_noise));
    held_.erase(0, num_noise);
    return {};
  }
  bool over() const { return over_; }
  // The last 8 KiB of the greeting.
  std::string text() const { return over_ ? noise_.text() : noise_.text() + held_; }

 private:
  std::string preamble_, held_;
  OutputTail noise_;
  bool over_ = false;
};

}  // namespace dslaunch::spawn
