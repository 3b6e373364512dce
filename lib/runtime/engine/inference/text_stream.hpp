// The text of a request while its tokens arrive: whole characters only, and nothing of a text that ends it. Pure.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/engine/inference/text_codec.hpp"

namespace dslaunch::runtime::engine::inference {

// Bytes that are not UTF-8 become U+FFFD.
std::string as_utf8(std::string_view bytes);

class TextStream {
 public:
  // `stops`: texts that end the text in front of them.
  TextStream(std::unique_ptr<ByteStream> tokens, std::vector<std::string> stops)
      : tokens_(std::move(tokens)), stops_(std::move(stops)) {}

  // What may be shown now, as UTF-8: without the begin of a character, or of a text that would end it.
  std::string add(int64_t id);
  bool is_stopped() const { return is_stopped_; }
  // What add() has held back.
  std::string finish();
  // All of it, as UTF-8.
  std::string text() const { return as_utf8(bytes_); }
  // What text() is made of, and how much of it has been returned.
  const std::string& bytes() const { return bytes_; }
  size_t num_shown() const { return shown_; }

 private:
  void take(const std::string& more);
  std::string take_until(size_t end);
  size_t end_of_shown() const;

  const std::unique_ptr<ByteStream> tokens_;
  const std::vector<std::string> stops_;
  std::string bytes_;
  size_t shown_ = 0;  // of the bytes
  bool is_stopped_ = false;
};

}  // namespace dslaunch::runtime::engine::inference
