// Finds which of many strings a text begins with. Any thread once it is filled.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace dslaunch::runtime::text {

class ByteTrie {
 public:
  ByteTrie();

  // A string that is not empty; inserted again, it gets the new value.
  void insert(std::string_view key, int64_t value);
  bool is_empty() const { return values_.size() == 1; }

  // Calls visit(length, value) for each string that `text` begins with, the shortest first.
  template <class Visit>
  void visit_prefixes(std::string_view text, const Visit& visit) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (values_[node] >= 0) visit(i + 1, values_[node]);
    }
  }

  struct Match {
    size_t length = 0;  // 0: none
    int64_t value = -1;
  };
  Match longest_prefix(std::string_view text) const;

 private:
  uint32_t child(uint32_t node, unsigned char byte) const {
    if (node == 0) return first_[byte];
    const uint64_t key = uint64_t{node} << 8 | byte;
    for (size_t slot = slot_of(key);; slot = (slot + 1) & (slots_.size() - 1)) {
      if (slots_[slot].key == key) return slots_[slot].node;
      if (slots_[slot].key == 0) return 0;
    }
  }
  size_t slot_of(uint64_t key) const { return (key * 0x9e3779b97f4a7c15) >> 32 & (slots_.size() - 1); }
  uint32_t add_child(uint32_t node, unsigned char byte);
  void grow();

  struct Slot {
    uint64_t key = 0;  // parent << 8 | byte; 0: free, as the root's children are in first_
    uint32_t node = 0;
  };
  std::vector<int64_t> values_;  // by node; -1: none. Node 0 is the root
  uint32_t first_[256] = {};
  std::vector<Slot> slots_;
  size_t num_slots_used_ = 0;
};

}  // namespace dslaunch::runtime::text
