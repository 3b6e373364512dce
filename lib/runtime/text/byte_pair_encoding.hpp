// The model "BPE" of tokenizer.json: a word's characters are joined pair by pair, in the order of the merges. Caches
// words; one thread.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/text/json_node.hpp"

namespace dslaunch::runtime::text {

class BytePairEncoding {
 public:
  // Of the file's entry "model". Throws UserError(65).
  explicit BytePairEncoding(const JsonNode& node);

  // Appends the ids of a word.
  void encode(std::string_view word, std::vector<int64_t>& out);

  std::optional<int64_t> id_of(std::string_view piece) const;
  // Empty: no piece has this id.
  std::string_view piece(int64_t id) const;
  int64_t num_ids() const { return static_cast<int64_t>(pieces_.size()); }

 private:
  struct Merge {
    uint32_t rank = 0, id = 0;
  };
  // (left id, right id) -> the merge; a table with free slots in between.
  class Merges {
   public:
    void insert(uint32_t left, uint32_t right, Merge merge);
    const Merge* find(uint32_t left, uint32_t right) const;

   private:
    struct Slot {
      uint64_t key = kFree;
      Merge merge;
    };
    static constexpr uint64_t kFree = ~uint64_t{0};
    size_t slot_of(uint64_t key) const { return (key * 0x9e3779b97f4a7c15) >> 32 & (slots_.size() - 1); }
    Slot& place_of(uint64_t key);

    std::vector<Slot> slots_ = std::vector<Slot>(64);
    size_t num_used_ = 0;
  };
  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  template <class Value>
  using ByText = std::unordered_map<std::string, Value, TextHash, std::equal_to<>>;

  void read_vocabulary(const JsonNode& node);
  void read_merges(const JsonNode& node);
  std::vector<uint32_t> symbols_of(std::string_view word) const;
  std::vector<uint32_t> merge(const std::vector<uint32_t>& symbols) const;
  const std::vector<uint32_t>& ids_of(std::string_view word);

  std::vector<std::string> pieces_;  // by id
  ByText<uint32_t> ids_;
  Merges merges_;
  // Of pieces that do not begin a word, and of those that end one; may be empty.
  std::string inner_prefix_, end_suffix_;
  std::optional<uint32_t> unknown_;
  std::optional<uint32_t> of_bytes_[256];  // with byte_fallback
  bool fuses_unknown_ = false, ignores_merges_ = false;
  ByText<std::vector<uint32_t>> cache_;
  std::vector<uint32_t> uncached_;
};

}  // namespace dslaunch::runtime::text
