#include "runtime/model/fusion/fused_operator.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/generated_kernels/compiler.hpp"
#include "runtime/model/fusion/fusion_passes.hpp"
#include "runtime/model/fusion/lowering.hpp"

namespace dslaunch::runtime::model::fusion {
namespace {

using torch::jit::Stack;

using Description = std::vector<int64_t>;

// Of what a program depends on; nothing: the subgraph runs as it is.
std::optional<Description> describe(const std::vector<c10::IValue>& inputs) {
  Description out;
  for (const auto& input : inputs) {
    if (input.isTensor()) {
      const at::Tensor& tensor = input.toTensor();
      if (!tensor.defined() || tensor.layout() != at::kStrided ||
          at::autocast::is_autocast_enabled(tensor.device().type())) {
        return std::nullopt;
      }
      out.push_back(static_cast<int64_t>(tensor.scalar_type()));
      out.push_back(static_cast<int64_t>(tensor.device().type()) * 256 + tensor.device().index());
      out.push_back(tensor.dim());
      out.insert(out.end(), tensor.sizes().begin(), tensor.sizes().end());
      out.insert(out.end(), tensor.strides().begin(), tensor.strides().end());
    } else if (input.isInt()) {
      out.insert(out.end(), {-1, input.toInt()});
    } else if (input.isBool()) {
      out.insert(out.end(), {-2, input.toBool() ? 1 : 0});
    } else if (input.isDouble()) {
      const double number = input.toDouble();
      int64_t bits = 0;
      static_assert(sizeof bits == sizeof number);
      std::memcpy(&bits, &number, sizeof bits);
      out.insert(out.end(), {-3, bits});
    } else if (input.isNone()) {
      out.push_back(-4);
    } else {
      return std::nullopt;
    }
  }
  return out;
}

struct Hash {
  size_t operator()(const Description& description) const {
    size_t hash = description.size();
    for (const int64_t one : description) hash = hash * 0x9e3779b97f4a7c15ULL + static_cast<size_t>(one);
    return hash ^ (hash >> 29);
  }
};

const auto kServices = c10::Symbol::attr("services");  // of a node

class FusedRegion {
 public:
  FusedRegion(std::shared_ptr<torch::jit::Graph> graph, std::vector<bool> offered, FusionServicesPtr services)
      : graph_(std::move(graph)),
        code_(graph_, "fused_region"),
        shared_{.services = std::move(services), .offered = std::move(offered)} {}

  void run(Stack& stack) {
    const size_t count = graph_->inputs().size();
    const std::vector<c10::IValue> inputs(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
    const FusionProgram* program = program_for(inputs);
    if (program == nullptr) {
      torch::jit::InterpreterState(code_).run(stack);
      return;
    }
    torch::jit::drop(stack, count);
    for (auto& output : program->run(inputs)) stack.push_back(std::move(output));
  }

 private:
  const FusionProgram* program_for(const std::vector<c10::IValue>& inputs) {
    const auto description = describe(inputs);
    if (!description) return nullptr;
    const std::lock_guard lock(mutex_);
    if (const auto found = programs_.find(*description); found != programs_.end()) return found->second.get();
    const bool is_on_gpu = std::any_of(
        inputs.begin(), inputs.end(), [](const auto& input) { return input.isTensor() && input.toTensor().is_cuda(); });
    if (is_on_gpu && !has_compiler()) {
      log().add({num_operators(), 0, "kernels cannot be compiled here"});
      return nullptr;
    }
    if (programs_.size() >= kMaxShapesOfGroup) {
      warn(inputs, fmt::format("they ran with {} shapes, the most that have programs", programs_.size()));
      return nullptr;
    }
    auto& place = programs_[*description];
    auto made = make_program(inputs);
    if (!made.ok()) log::debug("a group of operators stays as it is: {}", made.error());
    log().add({num_operators(), made.ok() ? (*made)->num_regions() : 0, made.ok() ? "" : made.error()});
    if (made.ok()) place = *std::move(made);
    if (place != nullptr) log::debug("{}", place->describe());
    return place.get();
  }

  Result<std::unique_ptr<FusionProgram>> make_program(const std::vector<c10::IValue>& inputs) {
    const size_t num_regions = shared_.regions.size();
    shared_.may_grow = num_compiled_ < kMaxCompiledOfGroup;
    auto made = FusionProgram::make(*graph_, inputs, shared_);
    if (shared_.regions.size() > num_regions) num_compiled_ += 1;
    if (!made.ok() && made.error() == kOtherKernels) {
      warn(inputs, fmt::format("{} shapes needed kernels of their own, the most that are compiled", num_compiled_));
    }
    return made;
  }

  void warn(const std::vector<c10::IValue>& inputs, const std::string& why) {
    std::vector<std::string> shapes;
    for (const auto& input : inputs) {
      if (input.isTensor()) shapes.push_back(fmt::format("[{}]", fmt::join(input.toTensor().sizes(), ", ")));
    }
    log().say_once(
        "shapes of fused regions",
        fmt::format("{} operators of the model run one by one, which is slower, for inputs of new shapes such "
                    "as {}: {}; pad the samples to fewer lengths, such as multiples of 64",
                    num_operators(), fmt::join(shapes, " "), why));
  }

  ProgramLog& log() { return *shared_.services->log; }

  bool has_compiler() {
    const auto compiler = generated_kernels::Compiler::find();
    if (compiler.ok()) return true;
    log().say_once("compiler", fmt::format("elementwise operators of the model run one by one: {}", compiler.error()));
    return false;
  }

  size_t num_operators() const {
    const auto nodes = graph_->nodes();
    return static_cast<size_t>(
        std::count_if(nodes.begin(), nodes.end(), [](const auto* node) { return is_fusible(node); }));
  }

  const std::shared_ptr<torch::jit::Graph> graph_;
  const torch::jit::Code code_;
  std::mutex mutex_;
  FusionProgram::Shared shared_;  // guarded, like the rest
  size_t num_compiled_ = 0;       // programs that needed other kernels than those before
  std::unordered_map<Description, std::unique_ptr<FusionProgram>, Hash> programs_;  // null: as it is
};

torch::jit::Operation fused_region_operation(const torch::jit::Node* node) {
  auto services = node->ival(kServices).toCustomClass<FusionServices>();
  auto region =
      std::make_shared<FusedRegion>(node->g(c10::attr::Subgraph)->copy(), offered_outputs(node), std::move(services));
  return [region](Stack& stack) { region->run(stack); };
}

// LibTorch prints and compares attributes of nodes, which it cannot do with a capsule.
const torch::class_<FusionServices> kServicesClass("dslaunch", "FusionServices");

const torch::jit::RegisterOperators kRegistration({torch::jit::Operator("dslaunch::fused_region(...) -> ...",
                                                                        fused_region_operation,
                                                                        c10::AliasAnalysisKind::CONSERVATIVE)});

}  // namespace

torch::jit::Node* create_fused_region(torch::jit::Graph& graph, at::ArrayRef<torch::jit::Value*> inputs,
                                      std::shared_ptr<torch::jit::Graph> subgraph, const FusionServicesPtr& services) {
  torch::jit::Node* node = graph.create(c10::Symbol::fromQualString(kFusedRegion), inputs, subgraph->outputs().size());
  node->g_(c10::attr::Subgraph, std::move(subgraph));
  node->ival_(kServices, c10::IValue(services));
  return node;
}

}  // namespace dslaunch::runtime::model::fusion
