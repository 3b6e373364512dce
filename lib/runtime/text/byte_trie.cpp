#include "runtime/text/byte_trie.hpp"

#include <utility>

namespace dslaunch::runtime::text {

ByteTrie::ByteTrie() : values_(1, -1), slots_(64) {}

void ByteTrie::insert(std::string_view key, int64_t value) {
  uint32_t node = 0;
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    const uint32_t next = child(node, byte);
    node = next ? next : add_child(node, byte);
  }
  values_[node] = value;
}

ByteTrie::Match ByteTrie::longest_prefix(std::string_view text) const {
  Match longest;
  visit_prefixes(text, [&](size_t length, int64_t value) { longest = {length, value}; });
  return longest;
}

uint32_t ByteTrie::add_child(uint32_t node, unsigned char byte) {
  const auto added = static_cast<uint32_t>(values_.size());
  values_.push_back(-1);
  if (node == 0) return first_[byte] = added;
  if (++num_slots_used_ * 2 > slots_.size()) grow();
  const uint64_t key = uint64_t{node} << 8 | byte;
  size_t slot = slot_of(key);
  while (slots_[slot].key) slot = (slot + 1) & (slots_.size() - 1);
  slots_[slot] = {key, added};
  return added;
}

void ByteTrie::grow() {
  const auto old = std::exchange(slots_, std::vector<Slot>(slots_.size() * 2));
  for (const Slot& moved : old) {
    if (moved.key == 0) continue;
    size_t slot = slot_of(moved.key);
    while (slots_[slot].key) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = moved;
  }
}

}  // namespace dslaunch::runtime::text
