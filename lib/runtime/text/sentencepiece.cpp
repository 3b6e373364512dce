#include <algorithm>
#include <map>
#include <utility>

#include "base/format.hpp"
#include "base/utf8.hpp"
#include "runtime/text/characters.hpp"
#include "runtime/text/decoders.hpp"
#include "runtime/text/piece_division.hpp"
#include "runtime/text/piece_normalizer.hpp"
#include "runtime/text/sentencepiece_model.hpp"
#include "runtime/text/tokenizer_files.hpp"

namespace dslaunch::runtime::text {
namespace {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(SentencePieceModel model, const JsonNode& config, const std::string& path)
      : Tokenizer(path),
        model_(std::move(model)),
        pieces_(model_, path),
        normalizer_(model_, pieces_.user_defined(), path) {
    for (const auto& [id, entry] : config["added_tokens_decoder"].entries()) add_token(id, entry);
    const std::string type = config["tokenizer_class"].text("");
    const bool is_t5 = type.starts_with("T5"), is_llama = type.starts_with("Llama") || type.starts_with("Gemma");
    if (config["add_bos_token"].flag(is_llama)) before_ = required(model_.bos_piece, config["add_bos_token"]);
    if (config["add_eos_token"].flag(is_t5)) after_ = required(model_.eos_piece, config["add_eos_token"]);
  }

  std::vector<int64_t> encode(std::string_view text, bool add_special) override {
    const std::string normalized = normalizer_.apply(valid_utf8(text));
    std::vector<int64_t> out;
    if (add_special) out = before_;
    bool was_unknown = false;
    for (const Piece& piece : divide(pieces_, model_.kind, normalized)) {
      const bool is_unknown = piece.id == pieces_.unknown();
      if (is_unknown && model_.has_byte_fallback) {
        for (const char byte : piece.text) out.push_back(pieces_.of_byte(byte));
      } else if (!(is_unknown && was_unknown)) {
        out.push_back(piece.id);
      }
      was_unknown = is_unknown;
    }
    if (add_special) out.insert(out.end(), after_.begin(), after_.end());
    return out;
  }

  std::unique_ptr<StreamDecoder> stream_decoder(bool skip_special) const override {
    return std::make_unique<Decoder>(*this, skip_special);
  }

  int64_t vocabulary_size() const override {
    const auto size = static_cast<int64_t>(model_.pieces.size());
    return added_.empty() ? size : std::max(size, added_.rbegin()->first + 1);
  }

  std::optional<int64_t> id_of(std::string_view token) const override {
    const auto is_it = [&](const auto& entry) { return entry.second.text == token; };
    const auto added = std::find_if(added_.begin(), added_.end(), is_it);
    return added != added_.end() ? std::optional(added->first) : pieces_.id_of(token);
  }

 private:
  struct Added {  // a token behind the model's pieces
    std::string text;
    bool is_special = false;
  };

  class Decoder final : public StreamDecoder {
   public:
    Decoder(const SentencePieceTokenizer& of, bool skip_special) : of_(of), skip_special_(skip_special) {}

    std::string push(int64_t id) override {
      const bool is_piece = id >= 0 && id < static_cast<int64_t>(of_.model_.pieces.size());
      if (is_piece && of_.pieces_.is(id, PieceType::kByte)) {
        bytes_ += static_cast<char>(byte_of_piece(of_.pieces_[id].text));
        return take_bytes(bytes_.size() - incomplete_tail(bytes_));
      }
      std::string out = take_bytes(bytes_.size());
      out += is_piece ? text_of(id) : added_text(id);
      const bool is_control = is_piece && of_.pieces_.is(id, PieceType::kControl);
      has_text_ = has_text_ || (!is_control && !out.empty());
      return out;
    }

    std::string finish() override {
      std::string out = take_bytes(bytes_.size());
      has_text_ = has_prefix_ = false;
      return out;
    }

   private:
    // Characters, and U+FFFD for each byte that belongs to none.
    std::string take_bytes(size_t count) {
      std::string out;
      std::string_view rest = std::string_view(bytes_).substr(0, count);
      while (!rest.empty()) {
        const size_t length = utf8_length(rest);
        out += length ? rest.substr(0, length) : "\xef\xbf\xbd";
        rest.remove_prefix(length ? length : 1);
      }
      bytes_.erase(0, count);
      has_text_ = has_text_ || !out.empty();
      return out;
    }

    std::string text_of(int64_t id) {
      const SentencePiece& piece = of_.pieces_[id];
      if (piece.type == PieceType::kControl) return skip_special_ ? std::string() : piece.text;
      if (piece.type == PieceType::kUnknown) return of_.model_.unknown_surface;
      std::string_view rest = piece.text;
      const bool takes_prefix = of_.model_.adds_dummy_prefix || of_.model_.removes_extra_whitespace;
      if (takes_prefix && !has_text_ && !has_prefix_ && rest.starts_with(kSpaceSymbol)) {
        rest.remove_prefix(kSpaceSymbol.size());
        has_prefix_ = !of_.model_.removes_extra_whitespace;  // then all spaces in front go
      }
      std::string out;
      while (!rest.empty()) {
        const bool is_space = rest.starts_with(kSpaceSymbol);
        is_space ? out += ' ' : out += rest[0];
        rest.remove_prefix(is_space ? kSpaceSymbol.size() : 1);
      }
      return out;
    }

    std::string added_text(int64_t id) const {
      const auto added = of_.added_.find(id);
      return added == of_.added_.end() || (skip_special_ && added->second.is_special) ? std::string()
                                                                                      : added->second.text;
    }

    const SentencePieceTokenizer& of_;
    const bool skip_special_;
    std::string bytes_;
    bool has_text_ = false, has_prefix_ = false;
  };

  void add_token(const std::string& id_text, const JsonNode& entry) {
    const bool is_number =
        !id_text.empty() && id_text.size() < 9 && id_text.find_first_not_of("0123456789") == id_text.npos;
    const int64_t id = is_number ? std::stoll(id_text) : kMaxTokens;
    if (id >= kMaxTokens) entry.fail(fmt::format("'{}' is not the id of a token", id_text));
    if (id < static_cast<int64_t>(model_.pieces.size())) return;
    added_[id] = {entry["content"].text(), entry["special"].flag(false)};
  }

  std::vector<int64_t> required(const std::string& piece, const JsonNode& node) const {
    const auto id = pieces_.id_of(piece);
    if (!id) node.fail(fmt::format("the model has no piece '{}'", piece));
    return {*id};
  }

  const SentencePieceModel model_;
  const PieceTable pieces_;
  const PieceNormalizer normalizer_;
  std::map<int64_t, Added> added_;
  std::vector<int64_t> before_, after_;
};

}  // namespace

std::unique_ptr<Tokenizer> read_sentencepiece(std::string_view bytes, const JsonNode& config, const std::string& path) {
  return std::make_unique<SentencePieceTokenizer>(parse_sentencepiece_model(bytes, path), config, path);
}

}  // namespace dslaunch::runtime::text
