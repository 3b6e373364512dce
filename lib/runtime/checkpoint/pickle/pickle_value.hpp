// The contents of a Python pickle as plain data. Nothing is ever executed or imported: a class is its name, an object
// is its class with the arguments and the state that Python would have passed. A few containers that only wrap plain
// data (OrderedDict, set, torch.Size, codecs.encode) are unwrapped. Immutable once read; any thread.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch::runtime::pickle {

enum class Kind : uint8_t {
  kNone,
  kBool,
  kInteger,  // 64 bits; a wider one is a float
  kFloat,
  kText,
  kBytes,
  kList,
  kTuple,
  kSet,
  kDict,
  kGlobal,      // a class or function: text is "module.name"
  kObject,      // callable(arguments), then state, items and entries as Python would have applied them
  kPersistent,  // a reference that the file format resolves: arguments is its id
};

struct Value {
  Kind kind = Kind::kNone;
  bool boolean = false;
  int64_t integer = 0;
  double number = 0;
  std::string text;                                            // kText, kBytes, kGlobal
  std::vector<const Value*> items;                             // kList, kTuple, kSet; appended to an object
  std::vector<std::pair<const Value*, const Value*>> entries;  // kDict, in order; set on an object
  const Value* callable = nullptr;                             // kObject
  const Value* arguments = nullptr;                            // kObject: a tuple as a rule; kPersistent
  const Value* state = nullptr;                                // kObject, if it has one

  bool is(Kind wanted) const { return kind == wanted; }
  // The last entry with that text as its key; null when there is none, or this is not a dict. Linear search.
  const Value* find(std::string_view key) const;
  // "module.name" of the class of an object or of a global; "" otherwise.
  std::string_view class_name() const;
  // An attribute of an object: from its state (a dict, or the dict of a pair), or its entries. Null when absent.
  const Value* attribute(std::string_view name) const;
  // A number: bool, integer, float, an enumeration's member by its value, or a numpy scalar.
  std::optional<double> as_number() const;
  std::optional<int64_t> as_integer() const;
};

// Owns the values; they may refer to each other in cycles, and nest as deeply as in the pickle.
class Document {
 public:
  const Value& root() const { return *root_; }
  size_t num_values() const { return values_.size(); }

 private:
  friend class Machine;
  std::deque<Value> values_;
  const Value* root_ = nullptr;
};

}  // namespace dslaunch::runtime::pickle
