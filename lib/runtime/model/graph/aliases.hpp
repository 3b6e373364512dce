// Which values of a graph may share memory, and which nodes write to it in place: the one alias analysis (why it is
// not LibTorch's: docs/decisions.md). Conservative, and without regard to order: what a value may be anywhere, it may
// be everywhere. Pure; the graph must not change while it is analyzed.
//
// Memory is a number of locations: one for each tensor or container that a node makes, for each argument, for each
// attribute of a module. A value has the locations that it may be; a tuple has those of each of its elements; a list or
// dict has a location of its own that holds those of its elements. Numbers and strings have none.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/model/graph/flat_graph.hpp"
#include "runtime/state/parameter_location.hpp"

namespace dslaunch::runtime::model::graph {

class Aliases {
 public:
  // Knows each module's attributes, and which of them are one tensor. Calls of units are followed.
  explicit Aliases(const FlatGraph& flat);
  // Of a graph that runs, for any module of its class: attributes of one name are one location. What a call is given,
  // it may write to, except for units that write to nothing.
  explicit Aliases(const torch::jit::Block* block);

  // Whether some node writes to the memory of the value, or to what it holds. Values made since are not known: false.
  bool is_written(const torch::jit::Value* value) const;

  // Attributes that the graph assigns or writes to, as (object, slot).
  std::set<SlotKey> written_attributes() const;
  bool is_assigned(const SlotKey& slot) const { return assigned_.count(slot) > 0; }
  struct WrittenArguments {
    bool tensors = false, containers = false;
  };
  WrittenArguments written_arguments() const;

  // The first call in a unit that could not be followed, as a clause; empty: there is none.
  const std::string& obstacle() const { return obstacle_; }

  // All locations that a value may be are one set: what a value of the set writes, all its others may see.
  struct Set {
    bool is_attribute = false;         // of a module
    bool is_parameter = false;         // with a parameter of the model in it
    std::vector<size_t> writes, uses;  // by nodes of the graph's own block: their positions, ascending
    size_t first_use() const { return uses.front(); }
    size_t last_use() const { return uses.back(); }
  };
  // By leaf of the value; kNone for a leaf without memory.
  static constexpr int kNone = -1;
  std::vector<int> sets_of(const torch::jit::Value* value) const;
  // The sets of a value and of all that its containers hold.
  std::set<int> reached_from(const torch::jit::Value* value) const;
  const Set& set(int number) const { return sets_.at(number); }
  // Numbers of sets with a write.
  const std::vector<int>& written() const { return written_; }

 private:
  using Locations = std::set<int>;
  struct Location {
    Locations contents;  // of a container
    bool is_container = false, is_argument = false, is_attribute = false, is_parameter = false, is_written = false;
    SlotKey slot = {};  // of an attribute of a known object
    int set = kNone;
  };

  void analyze(at::ArrayRef<const torch::jit::Value*> arguments, const torch::jit::Block* block);
  int make(const Location& like, const c10::TypePtr& type);
  void make_own(const torch::jit::Value* value, const Location& like);
  int location_of_slot(const Object& object, size_t slot);
  void add_held(int location, const Object& object, size_t slot);
  int location_of_name(const torch::jit::Node* read_or_write, const c10::TypePtr& type);

  std::vector<Locations>& locations_of(const torch::jit::Value* value);
  Locations all_of(const torch::jit::Value* value);
  Locations contents_of(const Locations& locations) const;
  Locations containers_among(const Locations& locations) const;
  Locations reached(const Locations& locations) const;
  void grow(Locations& locations, const Locations& more);
  void grow(const torch::jit::Value* value, const Locations& more);
  void flow(const torch::jit::Value* from, const torch::jit::Value* to);
  void put_into(const Locations& containers, const Locations& more);

  void visit(const torch::jit::Block* block);
  void visit(const torch::jit::Node* node);
  void read_attribute(const torch::jit::Node* node);
  void read_member(const torch::jit::Node* node);
  void write_attribute(const torch::jit::Node* node);
  void visit_branches(const torch::jit::Node* node);
  void visit_loop(const torch::jit::Node* node);
  void visit_unit(const torch::jit::Node* node, const Object& unit);
  void visit_tuple(const torch::jit::Node* node);
  void visit_operator(const torch::jit::Node* node);
  void visit_writes(const torch::jit::Node* node);
  void share(const torch::jit::Node* node, size_t output, size_t input);
  void use(const torch::jit::Value* value);
  void write(const Locations& locations);
  void note_write(const Locations& locations);

  int set_of(int location) const;
  std::set<int> reached_sets(std::vector<int> left) const;
  void unite(int one, const Locations& others);
  void unite_locations();
  void collect_sets();

  ObjectOfValue objects_;
  std::unordered_map<const torch::jit::Node*, Object> unit_calls_;
  std::unordered_map<const torch::jit::Node*, FlatGraph> bodies_;  // of unit calls
  std::string obstacle_;
  std::set<const void*> parameter_storages_;
  bool knows_objects_ = true;
  bool is_recording_ = false;  // the last pass, when nothing grows any more
  bool has_grown_ = false;
  size_t position_ = 0;  // of the node of the graph's own block that is visited
  std::vector<Location> locations_;
  std::unordered_map<const torch::jit::Value*, std::vector<Locations>> values_;
  std::unordered_map<const torch::jit::Value*, std::vector<int>> own_;  // by leaf
  std::map<SlotKey, int> slots_;
  std::map<std::string, int> names_;
  std::map<int, Locations> stored_;            // what is assigned to attributes
  std::map<const void*, Locations> storages_;  // locations that are one tensor
  std::set<SlotKey> assigned_;
  std::vector<std::pair<int, size_t>> writes_, uses_;  // locations and positions
  // results
  std::map<int, Set> sets_;
  std::map<int, std::set<int>> set_contents_;
  std::vector<int> written_;
};

// The side effects of a module's forward: changes of its arguments, its own state (buffers, counters) and its
// parameters. Conservative: a value that may alias an argument is assumed to alias it.
struct ForwardEffects {
  bool is_analyzable = true;     // false: it calls code that the analysis cannot follow (an interface, another thread)
  bool changes_tensors = false;  // it may work in place on a tensor argument
  bool changes_containers = false;  // or append to a list or dict argument
  bool calls_autograd = false;      // it computes gradients itself
  // Attributes that it writes, as (object, slot): assigned, changed in place, or running statistics of a norm.
  std::set<SlotKey> written;
};

// `flat`: of flatten_resolved().
ForwardEffects scan_forward_effects(const FlatGraph& flat);

}  // namespace dslaunch::runtime::model::graph
