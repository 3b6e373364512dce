#include "runtime/model/operators/operator_traits.hpp"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "runtime/model/operators/operator_table.hpp"

namespace dslaunch::runtime::model::operators {
namespace {

constexpr OperatorTraits kUnknown;

// What still holds when the operator writes its result to its first operand.
OperatorTraits in_place(const OperatorTraits& of) {
  const bool keeps_sizes = of.elementwise || of.size == SizeRule::kLikeFirst;
  return {.size = keeps_sizes ? SizeRule::kLikeFirst : SizeRule::kUnknown,
          .type = of.type,
          .wants_one_type = of.wants_one_type,
          .only_first_has_elements = of.only_first_has_elements,
          .keeps_integers = of.keeps_integers,
          .flops = of.flops};
}

class Index {
 public:
  Index() {
    for (const Rows rows : all_rows()) {
      for (const Row& row : rows) add(row);
    }
  }

  const OperatorTraits& of(c10::Symbol kind) const {
    const auto found = by_kind_.find(kind);
    return found == by_kind_.end() ? kUnknown : found->second;
  }
  const OperatorTraits& of(std::string_view name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? kUnknown : *found->second;
  }

 private:
  void add(const Row& row) {
    for (size_t begin = 0; begin < row.names.size();) {
      const size_t end = std::min(row.names.find(' ', begin), row.names.size());
      const std::string name(row.names.substr(begin, end - begin));
      begin = end + 1;
      if (name.find("::") != std::string::npos) {
        add(name, row.traits);
        continue;
      }
      add("aten::" + name, row.traits);
      if (name.back() != '_') add("aten::" + name + "_", in_place(row.traits));
    }
  }

  void add(const std::string& name, const OperatorTraits& traits) {
    const auto kind = c10::Symbol::fromQualString(name);
    by_name_[kind.toQualString()] = &by_kind_.insert_or_assign(kind, traits).first->second;
  }

  std::unordered_map<c10::Symbol, OperatorTraits> by_kind_;
  std::unordered_map<std::string_view, const OperatorTraits*> by_name_;
};

const Index& index() {
  static const Index index;
  return index;
}

}  // namespace

const OperatorTraits& traits(c10::Symbol kind) {
  return index().of(kind);
}

const OperatorTraits& traits(std::string_view name) {
  return index().of(name);
}

bool works_in_place(c10::Symbol kind) {
  const std::string_view name = kind.toUnqualString();
  return kind.is_aten() && name.back() == '_' && !name.ends_with("__");
}

bool is_ours(c10::Symbol kind) {
  return std::string_view(kind.ns().toUnqualString()) == "dslaunch";
}

}  // namespace dslaunch::runtime::model::operators
