#include "runtime/text/byte_pair_encoding.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <queue>
#include <utility>

#include "base/format.hpp"
#include "base/printable.hpp"
#include "runtime/text/characters.hpp"

namespace dslaunch::runtime::text {
namespace {

constexpr size_t kMaxCachedWords = size_t{1} << 16, kMaxCachedBytes = 256;

}  // namespace

BytePairEncoding::BytePairEncoding(const JsonNode& node) {
  if (!node["dropout"].is_null()) node["dropout"].refuse("BPE with dropout");
  inner_prefix_ = node["continuing_subword_prefix"].text("");
  end_suffix_ = node["end_of_word_suffix"].text("");
  read_vocabulary(node["vocab"]);
  read_merges(node["merges"]);
  if (const auto unknown = node["unk_token"]; !unknown.is_null()) {
    const auto found = ids_.find(unknown.text());
    if (found == ids_.end()) unknown.fail(fmt::format("'{}' is not in the vocabulary", unknown.text()));
    unknown_ = found->second;
  }
  fuses_unknown_ = node["fuse_unk"].flag(false);
  ignores_merges_ = node["ignore_merges"].flag(false);
  for (unsigned byte = 0; node["byte_fallback"].flag(false) && byte < 256; ++byte) {
    const auto found = ids_.find(fmt::format("<0x{:02X}>", byte));
    if (found != ids_.end()) of_bytes_[byte] = found->second;
  }
}

void BytePairEncoding::read_vocabulary(const JsonNode& node) {
  const auto entries = node.entries();
  if (entries.empty()) node.fail("has no pieces");
  ids_.reserve(entries.size());
  for (const auto& [piece, id_node] : entries) {
    const auto id = static_cast<size_t>(id_node.id());
    if (piece.empty()) id_node.fail("an empty piece");
    if (id >= pieces_.size()) pieces_.resize(id + 1);
    if (!pieces_[id].empty()) id_node.fail(fmt::format("'{}' and '{}' have the same id {}", pieces_[id], piece, id));
    pieces_[id] = piece;
    ids_.emplace(piece, static_cast<uint32_t>(id));
  }
}

void BytePairEncoding::read_merges(const JsonNode& node) {
  uint32_t rank = 0;
  for (const JsonNode& entry : node.list()) {
    std::string left, right;
    if (entry.is_text()) {
      const std::string text = entry.text();
      const size_t space = text.find(' ');
      if (space == text.npos || text.find(' ', space + 1) != text.npos) entry.fail("expected two pieces");
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else {
      const auto pair = entry.list();
      if (pair.size() != 2) entry.fail("expected two pieces");
      left = pair[0].text();
      right = pair[1].text();
    }
    const auto id = [&](const std::string& piece) {
      const auto found = ids_.find(piece);
      if (found == ids_.end()) entry.fail(fmt::format("'{}' is not in the vocabulary", piece));
      return found->second;
    };
    const uint32_t left_id = id(left), right_id = id(right);
    if (!right.starts_with(inner_prefix_))
      entry.fail(fmt::format("'{}' does not begin with '{}'", right, inner_prefix_));
    merges_.insert(left_id, right_id, {rank++, id(left + right.substr(inner_prefix_.size()))});
  }
}

std::optional<int64_t> BytePairEncoding::id_of(std::string_view piece) const {
  const auto found = ids_.find(piece);
  return found == ids_.end() ? std::nullopt : std::optional<int64_t>(found->second);
}

std::string_view BytePairEncoding::piece(int64_t id) const {
  return id >= 0 && id < num_ids() ? std::string_view(pieces_[static_cast<size_t>(id)]) : std::string_view();
}

void BytePairEncoding::encode(std::string_view word, std::vector<int64_t>& out) {
  const auto& ids = ids_of(word);
  out.insert(out.end(), ids.begin(), ids.end());
}

const std::vector<uint32_t>& BytePairEncoding::ids_of(std::string_view word) {
  if (const auto cached = cache_.find(word); cached != cache_.end()) return cached->second;
  const auto whole = ignores_merges_ ? ids_.find(word) : ids_.end();
  uncached_ = whole != ids_.end() ? std::vector<uint32_t>{whole->second} : merge(symbols_of(word));
  if (word.size() > kMaxCachedBytes) return uncached_;
  if (cache_.size() >= kMaxCachedWords) cache_.clear();
  return cache_.emplace(word, std::move(uncached_)).first->second;
}

// One for each character; where the vocabulary lacks it, those of its bytes, or the unknown piece.
std::vector<uint32_t> BytePairEncoding::symbols_of(std::string_view word) const {
  std::vector<uint32_t> out;
  bool has_unknown = false;  // to be added; it waits for more of them
  const auto add_unknown = [&] {
    if (std::exchange(has_unknown, false)) out.push_back(*unknown_);
  };
  const bool is_marked = !inner_prefix_.empty() || !end_suffix_.empty();
  std::string marked;
  for (bool is_first = true; !word.empty(); is_first = false) {
    std::string_view character = word.substr(0, first_character(word).length);
    word.remove_prefix(character.size());
    if (is_marked) {
      marked = (is_first ? "" : inner_prefix_) + std::string(character) + (word.empty() ? end_suffix_ : "");
      character = marked;
    }
    if (const auto found = ids_.find(character); found != ids_.end()) {
      add_unknown();
      out.push_back(found->second);
      continue;
    }
    const auto of_byte = [this](char byte) { return of_bytes_[static_cast<unsigned char>(byte)]; };
    if (std::all_of(character.begin(), character.end(), of_byte)) {
      for (const char byte : character) out.push_back(*of_byte(byte));
    } else if (unknown_) {
      if (!fuses_unknown_) add_unknown();
      has_unknown = true;
    }
  }
  add_unknown();
  return out;
}

// A pair in the queue may be out of date, and counts as long as what stands there merges to the same piece, even if by
// another pair: as Hugging Face's library has it.
std::vector<uint32_t> BytePairEncoding::merge(const std::vector<uint32_t>& ids) const {
  struct Symbol {
    uint32_t id = 0;
    int previous = -1, next = -1;
    bool is_gone = false;
  };
  struct Candidate {
    int left = 0;
    Merge merge;
    bool operator<(const Candidate& other) const {  // the best one is the greatest
      return merge.rank != other.merge.rank ? merge.rank > other.merge.rank : left > other.left;
    }
  };
  const int size = static_cast<int>(ids.size());
  std::vector<Symbol> symbols(ids.size());
  for (int i = 0; i < size; ++i)
    symbols[static_cast<size_t>(i)] = {ids[static_cast<size_t>(i)], i - 1, i + 1 < size ? i + 1 : -1};
  const auto at = [&](int index) -> Symbol& { return symbols[static_cast<size_t>(index)]; };
  std::vector<Candidate> initial;
  for (int i = 0; i + 1 < size; ++i) {
    if (const Merge* found = merges_.find(at(i).id, at(i + 1).id)) initial.push_back({i, *found});
  }
  std::priority_queue<Candidate> queue({}, std::move(initial));
  const auto add = [&](int left) {
    if (const Merge* found = merges_.find(at(left).id, at(at(left).next).id)) queue.push({left, *found});
  };
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = at(best.left);
    if (left.is_gone || left.next < 0) continue;
    Symbol& right = at(left.next);
    const Merge* now = merges_.find(left.id, right.id);
    if (!now || now->id != best.merge.id) continue;
    left.id = best.merge.id;
    left.next = right.next;
    right.is_gone = true;
    if (left.next >= 0) at(left.next).previous = best.left;
    if (left.previous >= 0) add(left.previous);
    if (left.next >= 0) add(best.left);
  }
  std::vector<uint32_t> out;
  for (const Symbol& symbol : symbols) {
    if (!symbol.is_gone) out.push_back(symbol.id);
  }
  return out;
}

BytePairEncoding::Merges::Slot& BytePairEncoding::Merges::place_of(uint64_t key) {
  size_t slot = slot_of(key);
  while (slots_[slot].key != kFree && slots_[slot].key != key) slot = (slot + 1) & (slots_.size() - 1);
  return slots_[slot];
}

void BytePairEncoding::Merges::insert(uint32_t left, uint32_t right, Merge merge) {
  if (++num_used_ * 2 > slots_.size()) {
    const auto old = std::exchange(slots_, std::vector<Slot>(slots_.size() * 2));
    for (const Slot& moved : old) {
      if (moved.key != kFree) place_of(moved.key) = moved;
    }
  }
  const uint64_t key = uint64_t{left} << 32 | right;
  place_of(key) = {key, merge};
}

const BytePairEncoding::Merge* BytePairEncoding::Merges::find(uint32_t left, uint32_t right) const {
  const uint64_t key = uint64_t{left} << 32 | right;
  size_t slot = slot_of(key);
  while (slots_[slot].key != key) {
    if (slots_[slot].key == kFree) return nullptr;
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return &slots_[slot].merge;
}

}  // namespace dslaunch::runtime::text
