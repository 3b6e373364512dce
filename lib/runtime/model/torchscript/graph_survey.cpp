
#include <torch/csrc/jit/api/function_impl.h>

#include <string_view>

#include "base/format.hpp"
#include "runtime/model/fusion/fused_operator.hpp"
#include "runtime/model/fusion/segmenter.hpp"
#include "runtime/model/operators/operator_traits.hpp"
#include "runtime/model/torchscript/graph_passes.hpp"
#include "runtime/model/torchscript/units/unit_forwards.hpp"

namespace dslaunch::runtime::model::torchscript {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

constexpr int kMaxDepth = 64;  // of calls

// Not a view, which costs nothing.
bool computes_tensor(const Node* node) {
  const auto* schema = node->maybeSchema();
  if (schema == nullptr || !node->kind().is_aten()) return false;
  const auto& results = schema->returns();
  return !results.empty() && results[0].alias_info() == nullptr &&
         node->output(0)->type()->isSubtypeOf(*c10::TensorType::get());
}

class Survey {
 public:
  explicit Survey(GraphReport& report) : report_(report) {}

  // `module`: path of the innermost unit; `self`: path of the graph's first argument.
  void read(Graph& graph, const std::string& module, const std::string& self, int depth) {
    const auto left = fusion::operators_left(graph.block());
    read(graph.block(), graph, left, module, self, depth);
  }

  void call(const c10::ClassType& type, const std::string& method, const std::string& module, const std::string& self,
            int depth) {
    if (depth > kMaxDepth) return;
    if (method == "forward") {
      if (const auto unit = units::unit_forward(type)) return read(*unit->original.graph(), self, self, depth);
    }
    read_function(type.findMethod(method), module, self, depth);
  }

 private:
  using Left = std::unordered_map<const Node*, std::string_view>;

  void read(Block* block, const Graph& graph, const Left& left, const std::string& module, const std::string& self,
            int depth) {
    for (Node* node : block->nodes()) {
      for (Block* inner : node->blocks()) read(inner, graph, left, module, self, depth);
      const std::string name = node->kind().toQualString();
      if (node->kind() == c10::prim::CallMethod) {
        if (const auto type = node->input(0)->type()->cast<c10::ClassType>()) {
          call(*type, node->s(c10::attr::name), module, path_of(node->input(0), graph, self), depth + 1);
        }
      } else if (node->kind() == c10::prim::CallFunction) {
        read_function(node->input(0)->type()->expect<c10::FunctionType>()->function(), module, self, depth + 1);
      } else if (name == fusion::kFusedRegion) {
        add_region(*node->g(c10::attr::Subgraph), module);
      } else if (operators::is_ours(node->kind())) {
        report_.replaced[name] += 1;
      } else if (const auto found = left.find(node); found != left.end()) {
        report_.left[{name, std::string(found->second)}] += 1;
      } else if (computes_tensor(node)) {
        report_.left[{name, kNoKindOfRegions}] += 1;
      }
    }
  }

  void read_function(torch::jit::Function* function, const std::string& module, const std::string& self, int depth) {
    if (function == nullptr || !function->isGraphFunction() || depth > kMaxDepth) return;
    function->ensure_defined();
    read(*torch::jit::toGraphFunction(*function).graph(), module, self, depth);
  }

  // Of a module that the graph gets from its own attributes.
  static std::string path_of(const Value* value, const Graph& graph, const std::string& self) {
    if (!graph.inputs().empty() && value == graph.inputs()[0]) return self;
    const Node* node = value->node();
    if (node->kind() != c10::prim::GetAttr) return self;
    const std::string parent = path_of(node->input(0), graph, self);
    const std::string name = node->s(c10::attr::name);
    return parent.empty() ? name : parent + "." + name;
  }

  void add_region(const Graph& subgraph, const std::string& module) {
    GraphReport::Region region{module, {}};
    for (const Node* node : subgraph.nodes()) {
      const std::string name = node->kind().toQualString();
      const bool computes = node->kind().is_aten() || operators::is_ours(node->kind());
      const bool is_number = node->outputs().size() == 1 && node->output()->type()->kind() == c10::TypeKind::IntType;
      if (computes && !is_number) region.operators.push_back(name);
    }
    report_.regions.push_back(std::move(region));
  }

  GraphReport& report_;
};

}  // namespace

GraphReport report_graphs(const torch::jit::Module& model, const GraphPassOptions& options, at::Device device) {
  GraphReport report;
  for (const auto& pass : graph_passes()) {
    if (pass.key != nullptr && !(options.kernels.*pass.key)) report.switched_off.emplace_back(pass.name);
  }
  if (!options.kernels.fused_regions) {
    report.why_no_regions = "kernels.fused_regions is false";
  } else if (!device.is_cuda() && !options.regions_on_cpu) {
    report.why_no_regions = "on CPUs operators run one by one";
  }
  Survey(report).call(*model.type(), "forward", "", "", 0);
  if (!report.why_no_regions.empty()) report.left.clear();
  return report;
}

}  // namespace dslaunch::runtime::model::torchscript
