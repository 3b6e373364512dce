#include "runtime/engine/inference/text_stream.hpp"

#include <algorithm>

#include "base/utf8.hpp"

namespace dslaunch::runtime::engine::inference {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";
constexpr size_t kMaxLength = 4;  // of a character

class Bytes final : public ByteStream {
 public:
  std::string push(int64_t id) override { return {static_cast<char>(id)}; }
};

class ByteCodec final : public TextCodec {
 public:
  std::vector<int64_t> encode(std::string_view text) const override {
    std::vector<int64_t> ids;
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
    return ids;
  }
  std::unique_ptr<ByteStream> stream() const override { return std::make_unique<Bytes>(); }
  std::string token_text(int64_t id) const override {
    return id < num_tokens() ? std::string{static_cast<char>(id)} : std::string();
  }
  int64_t num_tokens() const override { return 256; }
};

size_t length_by_first(unsigned char byte) {
  if (byte >= 0xf0) return 4;
  if (byte >= 0xe0) return 3;
  return byte >= 0xc2 ? 2 : 1;
}

// Bytes at the end that begin a character, whose rest may come.
size_t begun_character(std::string_view bytes) {
  for (size_t count = 1; count < kMaxLength && count <= bytes.size(); ++count) {
    const auto byte = static_cast<unsigned char>(bytes[bytes.size() - count]);
    if ((byte & 0xc0) == 0x80) continue;
    return byte < 0xf5 && length_by_first(byte) > count ? count : 0;
  }
  return 0;
}

}  // namespace

std::unique_ptr<TextCodec> byte_codec() {
  return std::make_unique<ByteCodec>();
}

std::string as_utf8(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const size_t length = utf8_length(bytes);
    out += length > 0 ? bytes.substr(0, length) : kReplacement;
    bytes.remove_prefix(std::max<size_t>(1, length));
  }
  return out;
}

void TextStream::take(const std::string& more) {
  if (is_stopped_) return;
  bytes_ += more;
  size_t end = bytes_.npos;
  for (const auto& stop : stops_) end = std::min(end, bytes_.find(stop));
  if (end == bytes_.npos) return;
  is_stopped_ = true;
  bytes_.resize(end);
}

std::string TextStream::add(int64_t id) {
  take(tokens_->push(id));
  return take_until(is_stopped_ ? bytes_.size() : end_of_shown());
}

// As much of the end stays back as may still become something else.
size_t TextStream::end_of_shown() const {
  size_t held = begun_character(bytes_);
  for (const auto& stop : stops_) {
    for (size_t count = std::min(stop.size() - 1, bytes_.size()); count > held; --count) {
      if (bytes_.ends_with(std::string_view(stop).substr(0, count))) held = count;
    }
  }
  return bytes_.size() - held;
}

std::string TextStream::take_until(size_t end) {
  if (end <= shown_) return {};
  const std::string text = as_utf8(std::string_view(bytes_).substr(shown_, end - shown_));
  shown_ = end;
  return text;
}

std::string TextStream::finish() {
  take(tokens_->finish());
  return take_until(bytes_.size());
}

}  // namespace dslaunch::runtime::engine::inference
