#include "runtime/model/units/unit_forwards.hpp"

#include <unordered_map>
#include <utility>

namespace dslaunch::runtime {
namespace {

using Forwards = std::unordered_map<const c10::ClassType*, std::unique_ptr<torch::jit::GraphFunction>>;

Forwards& forwards() {
  static Forwards instance;
  return instance;
}

}  // namespace

torch::jit::GraphFunction* unit_forward(const c10::ClassType& type) {
  const auto found = forwards().find(&type);
  return found == forwards().end() ? nullptr : found->second.get();
}

void keep_unit_forward(const c10::ClassType& type, std::shared_ptr<torch::jit::Graph> graph) {
  forwards()[&type] = std::make_unique<torch::jit::GraphFunction>(
      c10::QualifiedName(type.name()->qualifiedName() + ".unit_forward"), std::move(graph), nullptr);
}

}  // namespace dslaunch::runtime
