#include "runtime/text/sentencepiece_model.hpp"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/utf8.hpp"
#include "runtime/text/json_node.hpp"

namespace dslaunch::runtime::text {
namespace {

[[noreturn]] void fail(const std::string& path, std::string_view clause) {
  throw UserError(ExitCode::kBadInput, fmt::format("damaged tokenizer: '{}': {}", path, clause));
}

// The fields of a message, one after another.
class Message {
 public:
  Message(std::string_view bytes, const std::string& path) : rest_(bytes), path_(path) {}

  bool next() {
    if (rest_.empty()) return false;
    const uint64_t key = take_varint();
    field_ = key >> 3;
    kind_ = key & 7;
    number_ = 0;
    bytes_ = {};
    switch (kind_) {
      case 0:
        number_ = take_varint();
        break;
      case 1:
        bytes_ = take(8);
        break;
      case 2:
        bytes_ = take(take_varint());
        break;
      case 5:
        bytes_ = take(4);
        break;
      default:
        fail(path_, "it is not a model of SentencePiece");
    }
    return true;
  }

  uint64_t field() const { return field_; }
  std::string_view bytes() const { return require(2), bytes_; }
  std::string text() const { return std::string(bytes()); }
  int64_t number() const { return require(0), static_cast<int64_t>(number_); }
  bool flag() const { return number() != 0; }
  float real() const {
    require(5);
    uint32_t bits = 0;
    for (size_t i = 4; i-- > 0;) bits = bits << 8 | static_cast<unsigned char>(bytes_[i]);
    return std::bit_cast<float>(bits);
  }
  Message message() const { return {bytes(), path_}; }

 private:
  void require(uint64_t kind) const {
    if (kind_ != kind) fail(path_, fmt::format("the field {} has another type than SentencePiece's", field_));
  }
  std::string_view take(uint64_t count) {
    if (count > rest_.size()) fail(path_, "it ends within a field");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  uint64_t take_varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return value;
    }
    fail(path_, "it is not a model of SentencePiece");
  }

  std::string_view rest_, bytes_;
  const std::string& path_;
  uint64_t field_ = 0, kind_ = 0, number_ = 0;
};

bool is_utf8(std::string_view text) {
  while (const size_t length = utf8_length(text)) text.remove_prefix(length);
  return text.empty();
}

SentencePiece read_piece(Message message, const std::string& path) {
  SentencePiece out;
  while (message.next()) {
    if (message.field() == 1) out.text = message.text();
    if (message.field() == 2) out.score = message.real();
    if (message.field() == 3) {
      if (message.number() < 1 || message.number() > 6) fail(path, "a piece of an unknown type");
      out.type = static_cast<PieceType>(message.number());
    }
  }
  if (out.text.empty() || !is_utf8(out.text)) fail(path, "a piece that is empty or not UTF-8");
  if (!std::isfinite(out.score)) fail(path, fmt::format("the score of '{}' is not finite", out.text));
  return out;
}

void read_trainer(Message message, SentencePieceModel& model, const std::string& path) {
  while (message.next()) {
    switch (message.field()) {
      case 3:
        if (message.number() != 1 && message.number() != 2) {
          refuse_tokenizer(
              path, message.number() == 3 ? "SentencePiece's model of words" : "SentencePiece's model of characters");
        }
        model.kind = static_cast<SentencePieceModel::Kind>(message.number());
        break;
      case 24:
        if (message.flag())
          refuse_tokenizer(path, "SentencePiece with spaces behind words (treat_whitespace_as_suffix)");
        break;
      case 35:
        model.has_byte_fallback = message.flag();
        break;
      case 44:
        model.unknown_surface = message.text();
        break;
      case 46:
        model.bos_piece = message.text();
        break;
      case 47:
        model.eos_piece = message.text();
        break;
      case 48:
        model.pad_piece = message.text();
        break;
      default:
        break;
    }
  }
}

void read_normalizer_spec(Message message, SentencePieceModel& model) {
  while (message.next()) {
    if (message.field() == 2) model.charsmap = message.text();
    if (message.field() == 3) model.adds_dummy_prefix = message.flag();
    if (message.field() == 4) model.removes_extra_whitespace = message.flag();
    if (message.field() == 5) model.escapes_whitespace = message.flag();
  }
}

void refuse_denormalizer(Message message, const std::string& path) {
  while (message.next()) {
    if (message.field() == 2 && !message.bytes().empty()) refuse_tokenizer(path, "SentencePiece with a denormalizer");
  }
}

}  // namespace

SentencePieceModel parse_sentencepiece_model(std::string_view bytes, const std::string& path) {
  SentencePieceModel out;
  Message message(bytes, path);
  while (message.next()) {
    if (message.field() == 1) out.pieces.push_back(read_piece(message.message(), path));
    if (message.field() == 2) read_trainer(message.message(), out, path);
    if (message.field() == 3) read_normalizer_spec(message.message(), out);
    if (message.field() == 5) refuse_denormalizer(message.message(), path);
  }
  for (size_t id = 0; id < out.pieces.size(); ++id) {
    if (out.pieces[id].type != PieceType::kUnknown) continue;
    if (out.unknown_id >= 0) fail(path, "it has two unknown pieces");
    out.unknown_id = static_cast<int64_t>(id);
  }
  if (out.unknown_id < 0) fail(path, "it has no unknown piece, so it is not a model of SentencePiece");
  return out;
}

}  // namespace dslaunch::runtime::text
