// The nesting of the pickles in TorchScript archives: the stack machine of LibTorch's unpickler, with the values' graph
// in place of values. A list may get further items when it is inside others already, so that only the whole graph has
// depths.
#include <torch/csrc/jit/serialization/pickler_helper.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "runtime/state/archive_nesting.hpp"

namespace dslaunch::runtime {
namespace {

using torch::jit::PickleOpCode;

// 0: a value that contains none.
using Node = uint32_t;

struct Graph {
  size_t num_nodes = 1;
  std::vector<std::pair<Node, Node>> contents;  // container and value

  Node add() { return static_cast<Node>(num_nodes++); }
  void put(Node container, Node value) {
    if (container != 0 && value != 0) contents.emplace_back(container, value);
  }
};

// The nodes on the longest path, from the innermost values outwards. Those that contain themselves count all.
size_t longest_path(const Graph& graph) {
  std::vector<size_t> first(graph.num_nodes + 1), num_open(graph.num_nodes), levels(graph.num_nodes, 1);
  for (const auto& [container, value] : graph.contents) {
    ++first[value + 1];
    ++num_open[container];
  }
  for (size_t node = 0; node < graph.num_nodes; ++node) first[node + 1] += first[node];
  std::vector<Node> containers(graph.contents.size());  // of each value: from first[value] on
  auto next = first;
  for (const auto& [container, value] : graph.contents) containers[next[value]++] = container;

  std::vector<Node> done;
  for (Node node = 1; node < graph.num_nodes; ++node) {
    if (num_open[node] == 0) done.push_back(node);
  }
  size_t longest = 0;
  for (size_t i = 0; i < done.size(); ++i) {
    const Node value = done[i];
    longest = std::max(longest, levels[value]);
    for (size_t at = first[value]; at < first[value + 1]; ++at) {
      levels[containers[at]] = std::max(levels[containers[at]], levels[value] + 1);
      if (--num_open[containers[at]] == 0) done.push_back(containers[at]);
    }
  }
  return longest + (graph.num_nodes - 1 - done.size());
}

class Scan {
 public:
  Scan(std::string_view pickle, size_t levels) : pickle_(pickle), levels_(levels) {}

  bool nests_deeper() {
    while (at_ < pickle_.size() && !has_deep_type_) {
      if (!execute(static_cast<PickleOpCode>(pickle_[at_++]))) break;
    }
    return has_deep_type_ || longest_path(graph_) > levels_;
  }

 private:
  // All return false where LibTorch stops: at the end, or at damage.
  bool skip(uint64_t num_bytes) {
    if (num_bytes > pickle_.size() - at_) return false;
    at_ += num_bytes;
    return true;
  }
  template <class Number>
  bool read(Number& number) {
    const size_t from = at_;
    if (!skip(sizeof number)) return false;
    std::memcpy(&number, pickle_.data() + from, sizeof number);
    return true;
  }
  bool read_line(std::string_view& line) {
    const size_t end = pickle_.find('\n', at_);
    if (end == pickle_.npos) return false;
    line = pickle_.substr(at_, end - at_);
    at_ = end + 1;
    return true;
  }

  bool push(Node node) {
    stack_.push_back(node);
    return true;
  }
  bool push_leaf(uint64_t num_bytes) { return skip(num_bytes) && push(0); }
  bool push_text() {
    uint32_t size = 0;
    if (!read(size)) return false;
    const size_t from = at_;
    if (!skip(size)) return false;
    if (size <= levels_) return push(0);
    const Node node = graph_.add();
    long_texts_[node] = pickle_.substr(from, size);
    return push(node);
  }

  // The values above `from` become a container's.
  bool take_items(size_t from, Node container) {
    if (from > stack_.size()) return false;
    for (size_t i = from; i < stack_.size(); ++i) graph_.put(container, stack_[i]);
    if (stack_.size() - from > 1) second_[container] = stack_[from + 1];
    stack_.resize(from);
    return true;
  }
  bool push_container_from(size_t from) {
    const Node node = graph_.add();
    return take_items(from, node) && push(node);
  }
  bool push_tuple_of(size_t num_items) {
    return stack_.size() >= num_items && push_container_from(stack_.size() - num_items);
  }
  bool push_container_from_mark() {
    size_t from = 0;
    return pop_mark(from) && push_container_from(from);
  }
  bool pop_mark(size_t& from) {
    if (marks_.empty()) return false;
    from = marks_.back();
    marks_.pop_back();
    return true;
  }
  // Into the container below the first of them.
  bool put_items(size_t from) { return from > 0 && from <= stack_.size() && take_items(from, stack_[from - 1]); }
  bool put_last(size_t num_items) { return stack_.size() > num_items && put_items(stack_.size() - num_items); }
  bool put_from_mark() {
    size_t from = 0;
    return pop_mark(from) && put_items(from);
  }

  bool read_global() {
    std::string_view module, name;
    if (!read_line(module) || !read_line(name)) return false;
    restores_types_ |= name == "restore_type_tag";
    parse_as_type(module);
    parse_as_type(name);
    return push(0);
  }
  void parse_as_type(std::string_view text) {
    has_deep_type_ |= text.size() > levels_ && line_nesting_deeper(std::string(text), levels_).has_value();
  }
  // A call of what read_global() named, with a tuple of arguments. That of restore_type_tag has a type at its second
  // place.
  bool call() {
    if (stack_.size() < 2) return false;
    if (const auto second = second_.find(stack_.back()); restores_types_ && second != second_.end()) {
      if (const auto text = long_texts_.find(second->second); text != long_texts_.end()) {
        parse_as_type(text->second);
        long_texts_.erase(text);
      }
    }
    const Node object = graph_.add();
    graph_.put(object, stack_.back());
    stack_.resize(stack_.size() - 2);
    return push(object);
  }

  bool remember(uint32_t index) {
    if (stack_.empty()) return false;
    memo_[index] = stack_.back();
    return true;
  }
  bool recall(uint32_t index) {
    const auto found = memo_.find(index);
    return push(found == memo_.end() ? 0 : found->second);
  }
  template <class Index>
  bool with_index(bool (Scan::*what)(uint32_t)) {
    Index index = 0;
    return read(index) && (this->*what)(index);
  }

  // The opcodes that LibTorch's unpickler accepts.
  bool execute(PickleOpCode opcode) {
    switch (opcode) {
      case PickleOpCode::PROTO:
        return skip(1);
      case PickleOpCode::MARK:
        marks_.push_back(stack_.size());
        return true;
      case PickleOpCode::NONE:
      case PickleOpCode::NEWTRUE:
      case PickleOpCode::NEWFALSE:
      case PickleOpCode::EMPTY_TUPLE:
        return push(0);
      case PickleOpCode::BININT1:
        return push_leaf(1);
      case PickleOpCode::BININT2:
        return push_leaf(2);
      case PickleOpCode::BININT:
        return push_leaf(4);
      case PickleOpCode::BINFLOAT:
        return push_leaf(8);
      case PickleOpCode::LONG1:
        return at_ < pickle_.size() && push_leaf(1 + static_cast<uint8_t>(pickle_[at_]));
      case PickleOpCode::BINUNICODE:
        return push_text();
      case PickleOpCode::EMPTY_LIST:
      case PickleOpCode::EMPTY_DICT:
        return push(graph_.add());
      case PickleOpCode::TUPLE1:
        return push_tuple_of(1);
      case PickleOpCode::TUPLE2:
        return push_tuple_of(2);
      case PickleOpCode::TUPLE3:
        return push_tuple_of(3);
      case PickleOpCode::TUPLE:
      case PickleOpCode::LIST:
      case PickleOpCode::DICT:
        return push_container_from_mark();
      case PickleOpCode::APPEND:
        return put_last(1);
      case PickleOpCode::SETITEM:
        return put_last(2);
      case PickleOpCode::APPENDS:
      case PickleOpCode::SETITEMS:
        return put_from_mark();
      case PickleOpCode::BINPUT:
        return with_index<uint8_t>(&Scan::remember);
      case PickleOpCode::LONG_BINPUT:
        return with_index<uint32_t>(&Scan::remember);
      case PickleOpCode::BINGET:
        return with_index<uint8_t>(&Scan::recall);
      case PickleOpCode::LONG_BINGET:
        return with_index<uint32_t>(&Scan::recall);
      case PickleOpCode::GLOBAL:
        return read_global();
      case PickleOpCode::NEWOBJ:
        if (stack_.empty()) return false;
        stack_.pop_back();
        return true;
      case PickleOpCode::BUILD:
      case PickleOpCode::REDUCE:
        return call();
      case PickleOpCode::BINPERSID:
        if (stack_.empty()) return false;
        stack_.back() = 0;
        return true;
      default:
        return false;
    }
  }

  const std::string_view pickle_;
  const size_t levels_;
  size_t at_ = 0;
  Graph graph_;
  std::vector<Node> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint32_t, Node> memo_;
  std::unordered_map<Node, Node> second_;                  // what is at the second place of a container
  std::unordered_map<Node, std::string_view> long_texts_;  // that may be deep types
  bool restores_types_ = false, has_deep_type_ = false;
};

}  // namespace

bool pickle_nests_deeper(std::string_view pickle, size_t levels) {
  return Scan(pickle, levels).nests_deeper();
}

}  // namespace dslaunch::runtime
