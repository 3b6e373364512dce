// Which values of a flattened forward may share memory, and which nodes write to it. Conservative, and without regard
// to order: values that share memory anywhere share it everywhere. Pure.
//
// A tuple has a set for each of its elements; a list or dict has one of its own and holds those of its elements.
// Numbers and strings have none. An attribute of a module has one, shared by attributes that hold the same tensor.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "runtime/model/stages/flat_forward.hpp"

namespace dslaunch::runtime::model::stages {

// Values of tuples inside tuples, one by one: "((a, b), c)" has three.
std::vector<c10::TypePtr> leaves_of(const c10::TypePtr& type);

class MemorySets {
 public:
  explicit MemorySets(const FlatForward& flat);

  // By leaf of the value; kNone for a leaf without memory.
  static constexpr int kNone = -1;
  std::vector<int> sets_of(const torch::jit::Value* value) const;
  // The sets of a value and of all that its containers hold.
  std::set<int> reached_from(const torch::jit::Value* value) const;

  struct Set {
    bool is_attribute = false;         // of a module
    bool is_parameter = false;         // with a parameter of the model in it
    std::vector<size_t> writes, uses;  // positions of nodes, ascending
    size_t first_use() const { return uses.front(); }
    size_t last_use() const { return uses.back(); }
  };
  const Set& set(int number) const { return sets_.at(number); }
  // Numbers of sets with a write.
  const std::vector<int>& written() const { return written_; }
  // Attributes that forward assigns.
  bool is_assigned(const SlotKey& slot) const { return assigned_.count(slot) > 0; }

 private:
  using Ids = std::vector<int>;  // by leaf
  struct Entry {
    int parent;
    std::vector<int> contents;  // of a container
    bool is_attribute = false, is_parameter = false;
  };

  // What an output shares with an input: nothing; its memory; or the output is a container of it.
  enum class Sharing { kNothing, kAnything, kContents };
  static Sharing sharing_of(const c10::AliasInfo& returned);
  static Sharing sharing_of(const c10::AliasInfo& given, const c10::AliasInfo& returned);

  int make();
  int find(int id) const;
  void unite(int one, int other);
  void unite(const Ids& some, const Ids& others);
  Ids ids_of(const torch::jit::Value* value);
  std::set<int> deep(const Ids& ids) const;
  int id_of_slot(const c10::intrusive_ptr<c10::ivalue::Object>& object, size_t slot);
  void find_assigned(const torch::jit::Block* block, const analysis::ObjectOfValue& objects);

  void visit(const torch::jit::Block* block, analysis::ObjectOfValue& objects, size_t position);
  void visit_node(const torch::jit::Node* node, analysis::ObjectOfValue& objects, size_t position);
  void read_attribute(const torch::jit::Node* node, analysis::ObjectOfValue& objects, size_t position);
  void write_attribute(const torch::jit::Node* node, analysis::ObjectOfValue& objects, size_t position);
  void visit_branches(const torch::jit::Node* node, analysis::ObjectOfValue& objects, size_t position);
  void visit_loop(const torch::jit::Node* node, analysis::ObjectOfValue& objects, size_t position);
  void visit_unit(const torch::jit::Node* node, const c10::intrusive_ptr<c10::ivalue::Object>& unit, size_t position);
  void visit_structure(const torch::jit::Node* node);
  void visit_operator(const torch::jit::Node* node, size_t position);
  void add_outputs(const torch::jit::Node* node, const c10::FunctionSchema* schema);
  void share(const torch::jit::Value* output, const torch::jit::Value* input, Sharing sharing);
  void use(const torch::jit::Value* value, size_t position);
  void finish();

  const FlatForward& flat_;
  std::vector<Entry> entries_;
  std::unordered_map<const torch::jit::Value*, Ids> ids_;
  std::map<SlotKey, int> slots_;
  std::unordered_map<const void*, int> storages_;
  std::set<const void*> parameter_storages_;
  std::set<SlotKey> assigned_;
  std::vector<std::pair<int, size_t>> uses_, writes_;
  std::vector<FlatBody> bodies_;
  // results
  std::map<int, Set> sets_;
  std::vector<int> written_;
};

}  // namespace dslaunch::runtime::model::stages
