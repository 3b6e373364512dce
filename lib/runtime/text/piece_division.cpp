#include "runtime/text/piece_division.hpp"

#include <algorithm>
#include <map>
#include <queue>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/text/characters.hpp"
#include "runtime/text/decoders.hpp"

namespace dslaunch::runtime::text {
namespace {

// The division of the text whose scores have the greatest sum. Sums are rounded as the library rounds them.
std::vector<Piece> encode_unigram(const PieceTable& pieces, std::string_view text) {
  struct End {  // of the best path that ends here
    float score = 0;
    int64_t id = -1;
    std::ptrdiff_t begin = -1;  // of its last piece; -1: no path
  };
  constexpr float kUnknownPenalty = 10;
  const float unknown_score = pieces.min_score() - kUnknownPenalty;
  std::vector<End> ends(text.size() + 1);
  const auto offer = [&](size_t begin, size_t length, int64_t id, float score) {
    const float sum = score + ends[begin].score;
    End& end = ends[begin + length];
    if (end.begin < 0 || sum > end.score) end = {sum, id, static_cast<std::ptrdiff_t>(begin)};
  };
  for (size_t begin = 0; begin < text.size();) {
    const size_t character = first_character(text.substr(begin)).length;
    bool has_character = false;
    pieces.in_texts().visit_prefixes(text.substr(begin), [&](size_t length, int64_t id) {
      if (pieces.is(id, PieceType::kUnused)) return;
      // As SentencePiece 0.2.3: the more bytes a piece of the user's has, the better.
      const float bonus = static_cast<float>(0.1 * static_cast<double>(length) - 0.1);
      offer(begin, length, id, pieces.is(id, PieceType::kUserDefined) ? bonus : pieces[id].score);
      has_character = has_character || length == character;
    });
    if (!has_character) offer(begin, character, pieces.unknown(), unknown_score);
    begin += character;
  }
  std::vector<Piece> out;
  for (size_t end = text.size(); end > 0;) {
    const auto begin = static_cast<size_t>(ends[end].begin);
    out.push_back({text.substr(begin, end - begin), ends[end].id});
    end = begin;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

// Joins pairs of neighbours, the greatest score first.
class PairMerging {
 public:
  PairMerging(const PieceTable& pieces, std::string_view text) : pieces_(pieces) {
    while (!text.empty()) {
      const auto user_defined = pieces.user_defined().longest_prefix(text);
      const size_t length = user_defined.length ? user_defined.length : first_character(text).length;
      const int index = static_cast<int>(symbols_.size());
      symbols_.push_back({text.substr(0, length), index - 1, index + 1, user_defined.length > 0});
      text.remove_prefix(length);
    }
    if (!symbols_.empty()) symbols_.back().next = -1;
  }

  std::vector<Piece> run() {
    for (int i = 0; i + 1 < static_cast<int>(symbols_.size()); ++i) offer(i, i + 1);
    while (!queue_.empty()) {
      const Pair best = queue_.top();
      queue_.pop();
      Symbol &left = at(best.left), &right = at(best.right);
      if (left.text.empty() || right.text.empty() || left.text.size() + right.text.size() != best.size) continue;
      left.text = {left.text.data(), best.size};
      left.next = right.next;
      if (right.next >= 0) at(right.next).previous = best.left;
      right.text = {};
      offer(left.previous, best.left);
      offer(best.left, left.next);
    }
    std::vector<Piece> out;
    for (int i = symbols_.empty() ? -1 : 0; i >= 0; i = at(i).next) add(at(i).text, out);
    return out;
  }

 private:
  struct Symbol {
    std::string_view text;
    int previous = -1, next = -1;
    bool is_frozen = false;
  };
  struct Pair {
    int left = 0, right = 0;
    float score = 0;
    size_t size = 0;
    bool operator<(const Pair& other) const {
      return score < other.score || (score == other.score && left > other.left);
    }
  };

  Symbol& at(int index) { return symbols_[static_cast<size_t>(index)]; }

  void offer(int left, int right) {
    if (left < 0 || right < 0 || at(left).is_frozen || at(right).is_frozen) return;
    const std::string_view whole(at(left).text.data(), at(left).text.size() + at(right).text.size());
    const auto id = pieces_.id_in_texts(whole);
    if (!id) return;
    queue_.push({left, right, pieces_[*id].score, whole.size()});
    if (pieces_.is(*id, PieceType::kUnused)) parts_[whole] = {at(left).text, at(right).text};
  }

  // A piece that is not used falls into the two that it was made of.
  void add(std::string_view text, std::vector<Piece>& out) const {
    const int64_t id = pieces_.id_of(text).value_or(pieces_.unknown());
    const auto parts = pieces_.is(id, PieceType::kUnused) ? parts_.find(text) : parts_.end();
    if (parts == parts_.end()) return out.push_back({text, id});
    add(parts->second.first, out);
    add(parts->second.second, out);
  }

  const PieceTable& pieces_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Pair> queue_;
  std::map<std::string_view, std::pair<std::string_view, std::string_view>> parts_;
};

}  // namespace

PieceTable::PieceTable(const SentencePieceModel& model, const std::string& path) : model_(model) {
  const auto fail = [&](const std::string& clause) {
    throw UserError(ExitCode::kBadInput, fmt::format("damaged tokenizer: '{}': it {}", path, clause));
  };
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const auto& piece = model.pieces[i];
    const auto id = static_cast<int64_t>(i);
    if (!ids_.emplace(piece.text, id).second) fail(fmt::format("has the piece '{}' twice", piece.text));
    if (piece.type == PieceType::kUserDefined) user_defined_.insert(piece.text, id);
    if (is_in_texts(id)) in_texts_.insert(piece.text, id);
    const int byte = byte_of_piece(piece.text);
    if (byte >= 0 && piece.type == PieceType::kByte) of_bytes_[static_cast<size_t>(byte)] = id;
    if (byte < 0 && piece.type == PieceType::kByte) fail(fmt::format("has '{}' as the piece of a byte", piece.text));
    if (piece.type == PieceType::kNormal) min_score_ = std::min(min_score_, piece.score);
  }
  const bool lacks_bytes = std::find(of_bytes_.begin(), of_bytes_.end(), -1) != of_bytes_.end();
  if (model.has_byte_fallback && lacks_bytes) fail("falls back to bytes and lacks the pieces of some");
}

std::optional<int64_t> PieceTable::id_of(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

bool PieceTable::is_in_texts(int64_t id) const {
  return is(id, PieceType::kNormal) || is(id, PieceType::kUserDefined) || is(id, PieceType::kUnused);
}

std::optional<int64_t> PieceTable::id_in_texts(std::string_view text) const {
  const auto id = id_of(text);
  return id && is_in_texts(*id) ? id : std::nullopt;
}

std::vector<Piece> divide(const PieceTable& pieces, SentencePieceModel::Kind kind, std::string_view text) {
  return kind == SentencePieceModel::Kind::kBpe ? PairMerging(pieces, text).run() : encode_unigram(pieces, text);
}

}  // namespace dslaunch::runtime::text
