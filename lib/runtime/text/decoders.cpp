#include "runtime/text/decoders.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/format.hpp"
#include "base/utf8.hpp"
#include "runtime/text/characters.hpp"
#include "runtime/text/pre_tokenizers.hpp"
#include "runtime/text/text_pattern.hpp"

namespace dslaunch::runtime::text {
namespace {

class Replace final : public DecodeStep {
 public:
  Replace(std::shared_ptr<const TextPattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void push(std::string piece, const Emit& emit) override {
    std::string out;
    for (const Span& span : pattern_->split(piece)) {
      out += span.is_match ? content_ : piece.substr(span.begin, span.end - span.begin);
    }
    emit(std::move(out));
  }

 private:
  const std::shared_ptr<const TextPattern> pattern_;
  const std::string content_;
};

// Pieces of bytes that follow each other are a text; unless all of it is UTF-8, each byte is U+FFFD.
class ByteFallback final : public DecodeStep {
 public:
  void push(std::string piece, const Emit& emit) override {
    if (const int byte = byte_of_piece(piece); byte >= 0) {
      bytes_ += static_cast<char>(byte);
      return;
    }
    finish(emit);
    emit(std::move(piece));
  }

  void finish(const Emit& emit) override {
    const std::string bytes = std::exchange(bytes_, {});
    std::string_view rest = bytes;
    while (const size_t length = utf8_length(rest)) rest.remove_prefix(length);
    if (rest.empty() && !bytes.empty()) return emit(bytes);
    for (size_t i = 0; i < bytes.size(); ++i) emit("\xef\xbf\xbd");
  }

 private:
  std::string bytes_;
};

// From here on the text is one piece: of the steps after it, what they do at its beginning happens once.
class Fuse final : public DecodeStep {
 public:
  void push(std::string piece, const Emit& emit) override { emit(std::move(piece)); }
};

// Removes up to `count` times `content` from the beginning of each piece, or of the text.
class StripStart final : public DecodeStep {
 public:
  StripStart(char32_t content, size_t count, bool is_of_text)
      : content_(content), count_(count), left_(count), is_of_text_(is_of_text) {}

  void push(std::string piece, const Emit& emit) override {
    std::string_view rest = piece;
    if (!is_of_text_) left_ = count_;
    while (left_ > 0 && !rest.empty()) {
      const auto [code, length] = first_character(rest);
      left_ = code == content_ ? left_ - 1 : 0;
      if (code == content_) rest.remove_prefix(length);
    }
    emit(std::string(rest));
  }

 private:
  const char32_t content_;
  const size_t count_;
  size_t left_;
  const bool is_of_text_;
};

// Bytes of all pieces are one text. A piece with a character that stands for no byte is its own bytes.
class ByteLevel final : public DecodeStep {
 public:
  void push(std::string piece, const Emit& emit) override {
    if (!append_bytes(piece)) bytes_ += piece;
    const size_t whole = bytes_.size() - incomplete_tail(bytes_);
    emit(valid_utf8(std::string_view(bytes_).substr(0, whole)));
    bytes_.erase(0, whole);
  }

  void finish(const Emit& emit) override { emit(valid_utf8(std::exchange(bytes_, {}))); }

 private:
  bool append_bytes(std::string_view piece) {
    const size_t before = bytes_.size();
    while (!piece.empty()) {
      const auto [code, length] = first_character(piece);
      const auto byte = byte_of_character(code);
      if (!byte) {
        bytes_.resize(before);
        return false;
      }
      bytes_ += *byte;
      piece.remove_prefix(length);
    }
    return true;
  }

  static std::optional<char> byte_of_character(char32_t code) {
    static const auto bytes = [] {
      std::vector<int> out(256 + 68, -1);
      for (int byte = 0; byte < 256; ++byte) out[byte_character(static_cast<unsigned char>(byte))] = byte;
      return out;
    }();
    if (code >= bytes.size() || bytes[code] < 0) return std::nullopt;
    return static_cast<char>(bytes[code]);
  }

  std::string bytes_;
};

class Metaspace final : public DecodeStep {
 public:
  Metaspace(std::string replacement, bool has_prefix) : replacement_(std::move(replacement)), is_first_(has_prefix) {}

  void push(std::string piece, const Emit& emit) override {
    std::string out;
    const bool is_first = std::exchange(is_first_, false);
    for (size_t i = 0; i < piece.size();) {
      if (std::string_view(piece).substr(i).starts_with(replacement_)) {
        if (!is_first) out += ' ';
        i += replacement_.size();
      } else {
        out += piece[i++];
      }
    }
    emit(std::move(out));
  }

 private:
  const std::string replacement_;
  bool is_first_;
};

// A suffix of pieces that end a word is a space, but for the last piece.
class WordEnds final : public DecodeStep {
 public:
  explicit WordEnds(std::string suffix) : suffix_(std::move(suffix)) {}

  void push(std::string piece, const Emit& emit) override {
    if (held_) emit(replaced(*held_, " "));
    held_ = std::move(piece);
  }
  void finish(const Emit& emit) override {
    if (held_) emit(replaced(*std::exchange(held_, std::nullopt), ""));
  }

 private:
  std::string replaced(const std::string& piece, std::string_view by) const {
    std::string out;
    for (size_t i = 0; i < piece.size();) {
      const bool is_suffix = !suffix_.empty() && std::string_view(piece).substr(i).starts_with(suffix_);
      is_suffix ? out += by : out += piece[i];
      i += is_suffix ? suffix_.size() : 1;
    }
    return out;
  }

  const std::string suffix_;
  std::optional<std::string> held_;
};

class Join final : public DecodeStep {
 public:
  void push(std::string piece, const Emit& emit) override {
    if (!std::exchange(is_first_, false)) emit(" ");
    emit(std::move(piece));
  }

 private:
  bool is_first_ = true;
};

// Appends a maker for each step. `is_fused`: the pieces that come are one text.
void read_steps(const JsonNode& node, std::vector<std::function<std::unique_ptr<DecodeStep>()>>& out, bool& is_fused) {
  const std::string type = node.type();
  if (type == "Sequence") {
    for (const JsonNode& step : node["decoders"].list()) read_steps(step, out, is_fused);
  } else if (type == "ByteLevel") {
    out.push_back([] { return std::make_unique<ByteLevel>(); });
    is_fused = true;
  } else if (type == "ByteFallback" && !is_fused) {
    out.push_back([] { return std::make_unique<ByteFallback>(); });
  } else if (type == "Fuse") {
    out.push_back([] { return std::make_unique<Fuse>(); });
    is_fused = true;
  } else if (type == "Replace" && !is_fused) {
    out.push_back([pattern = std::shared_ptr<const TextPattern>(read_pattern(node["pattern"])),
                   content = node["content"].text()] { return std::make_unique<Replace>(pattern, content); });
  } else if (type == "Strip") {
    const std::string content = node["content"].text();
    if (content.empty() || first_character(content).length != content.size()) {
      node["content"].fail("expected a character");
    }
    if (node["stop"].id() > 0) node["stop"].refuse("a decoder that strips the end");
    out.push_back([code = first_character(content).code, count = static_cast<size_t>(node["start"].id()), is_fused] {
      return std::make_unique<StripStart>(code, count, is_fused);
    });
  } else if (type == "BPEDecoder" && !is_fused) {
    out.push_back([suffix = node["suffix"].text("</w>")] { return std::make_unique<WordEnds>(suffix); });
  } else if (type == "Metaspace" && !is_fused) {
    const bool adds_prefix = node["add_prefix_space"].flag(true);
    const std::string scheme = node["prepend_scheme"].text(adds_prefix ? "always" : "never");
    out.push_back([replacement = node["replacement"].text("\xe2\x96\x81"), has_prefix = scheme != "never"] {
      return std::make_unique<Metaspace>(replacement, has_prefix);
    });
  } else {
    node.refuse(fmt::format("the decoder {}{}", type, is_fused ? " behind a step that joins all pieces" : ""));
  }
}

}  // namespace

int byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(piece.data() + 3, piece.data() + 5, byte, 16);
  return error == std::errc() && end == piece.data() + 5 ? static_cast<int>(byte) : -1;
}

DecodeStepFactory read_decoder(const JsonNode& node) {
  std::vector<std::function<std::unique_ptr<DecodeStep>()>> makers;
  bool is_fused = false;
  if (node.is_null()) {
    makers.push_back([] { return std::make_unique<Join>(); });
  } else {
    read_steps(node, makers, is_fused);
  }
  return [makers = std::move(makers)] {
    DecodeSteps steps;
    for (const auto& make : makers) steps.push_back(make());
    return steps;
  };
}

}  // namespace dslaunch::runtime::text
