// How SentencePiece's two kinds of models divide a normalized text into pieces. One thread.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/text/byte_trie.hpp"
#include "runtime/text/sentencepiece_model.hpp"

namespace dslaunch::runtime::text {

// What both kinds know of their pieces. The model must outlive it.
class PieceTable {
 public:
  // Throws UserError(65) for pieces that contradict each other. `path`: for messages.
  PieceTable(const SentencePieceModel& model, const std::string& path);

  const SentencePiece& operator[](int64_t id) const { return model_.pieces[static_cast<size_t>(id)]; }
  bool is(int64_t id, PieceType type) const { return (*this)[id].type == type; }
  int64_t unknown() const { return model_.unknown_id; }
  std::optional<int64_t> id_of(std::string_view text) const;
  // Those that texts are divided into: no control pieces, and none of bytes.
  const ByteTrie& in_texts() const { return in_texts_; }
  std::optional<int64_t> id_in_texts(std::string_view text) const;
  const ByteTrie& user_defined() const { return user_defined_; }
  int64_t of_byte(char byte) const { return of_bytes_[static_cast<unsigned char>(byte)]; }
  float min_score() const { return min_score_; }

 private:
  bool is_in_texts(int64_t id) const;

  const SentencePieceModel& model_;
  std::unordered_map<std::string_view, int64_t> ids_;
  ByteTrie in_texts_, user_defined_;
  std::vector<int64_t> of_bytes_ = std::vector<int64_t>(256, -1);
  float min_score_ = std::numeric_limits<float>::max();
};

struct Piece {
  std::string_view text;  // of the normalized text
  int64_t id = 0;         // the unknown piece's where no piece fits
};

std::vector<Piece> divide(const PieceTable& pieces, SentencePieceModel::Kind kind, std::string_view text);

}  // namespace dslaunch::runtime::text
