#include "runtime/model/torchscript/forward_errors.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/format.hpp"
#include "runtime/model/dtypes/dtype_operators.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/operators/operator_traits.hpp"
#include "runtime/model/torchscript/file/parameter_slots.hpp"
#include "runtime/model/torchscript/file/script_error.hpp"
#include "runtime/model/torchscript/units/unit_forwards.hpp"

namespace dslaunch::runtime::model::torchscript {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

// The operator or call that a line of the traceback marks: `x = torch.linear(y, weight)`, with ~~~ below it.
struct Frame {
  std::string file;
  size_t line = 0, column = 0;
};

std::optional<Frame> frame_in(const std::string& text) {
  const auto quote = text.find("File \""), end = text.find("\", line ");
  if (quote == std::string::npos || end == std::string::npos) return std::nullopt;
  const size_t begin = quote + 6;
  return Frame{text.substr(begin, end - begin), std::strtoul(text.c_str() + end + 8, nullptr, 10), 0};
}

// From the model's forward to the operator.
std::vector<Frame> traceback_in(const std::string& text) {
  std::vector<Frame> out;
  std::optional<Frame> open;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (auto frame = frame_in(line)) {
      open = frame;
    } else if (open && line.find("<--- HERE") != std::string::npos) {
      open->column = line.find('~');
      out.push_back(*open);
      open.reset();
    }
  }
  return out;
}

bool stands_at(const Node* node, const Frame& frame) {
  const auto place = node->sourceRange().file_line_col();
  return place && std::get<0>(*place) == frame.file && std::get<1>(*place) == frame.line &&
         std::get<2>(*place) == frame.column;
}

bool may_fail(const Node* node) {
  const auto kind = node->kind();
  return kind.is_aten() || operators::is_ours(kind) || kind == c10::prim::CallMethod || kind == c10::prim::CallFunction;
}

// The last one: nodes that passes inserted stand before the one that they belong to.
Node* node_at(Block* block, const Frame& frame) {
  Node* found = nullptr;
  graph::for_each_node(block, [&](Node* node) {
    if (may_fail(node) && stands_at(node, frame)) found = node;
  });
  return found;
}

Node* node_at(const torch::jit::Module& module, const Frame& frame) {
  if (const auto forward = units::unit_forward(*module.type())) {
    if (Node* node = node_at(forward->original.graph()->block(), frame)) return node;
  }
  for (auto* method : module.type()->methods()) {
    if (!method->isGraphFunction()) continue;
    if (Node* node = node_at(torch::jit::toGraphFunction(*method).graph()->block(), frame)) return node;
  }
  return nullptr;
}

// The path of a submodule that a method reads from `self`, "blocks.0"; empty if it comes from elsewhere.
std::string path_of(const Value* value) {
  std::string path;
  for (; value->node()->kind() == c10::prim::GetAttr; value = value->node()->input(0)) {
    const auto& name = value->node()->s(c10::attr::name);
    path = path.empty() ? name : file::join_path(name, path);
  }
  return path;
}

torch::jit::Module submodule(torch::jit::Module module, const std::string& path) {
  std::istringstream names(path);
  for (std::string name; std::getline(names, name, '.');) module = module.attr(name).toModule();
  return module;
}

struct FailedOperator {
  std::string module;  // path
  const Node* node = nullptr;
};

// Descends with the calls of the traceback. In a stage of a pipeline calls are inlined, down to those of units, and a
// frame of such a call has no node.
std::optional<FailedOperator> locate(const torch::jit::Module& model, const std::vector<Frame>& traceback) {
  torch::jit::Module module = model;
  std::string path;
  std::shared_ptr<Graph> function;  // called by the module; null: a method of it
  for (const Frame& frame : traceback) {
    Node* node = function ? node_at(function->block(), frame) : node_at(module, frame);
    if (node == nullptr) continue;
    if (node->kind() == c10::prim::CallMethod) {
      const std::string child = path_of(node->input(0));
      module = submodule(module, child);
      path = child.empty() ? path : path.empty() ? child : file::join_path(path, child);
    } else if (node->kind() == c10::prim::CallFunction) {
      auto* callee = node->input(0)->type()->expect<c10::FunctionType>()->function();
      if (!callee->isGraphFunction()) return std::nullopt;
      function = torch::jit::toGraphFunction(*callee).graph();
    } else {
      return FailedOperator{path.empty() ? "the model itself" : path, node};
    }
  }
  return std::nullopt;
}

// The first two different floating-point types that PyTorch's message names, in our words.
std::vector<std::string> types_in(std::string_view cause) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kTypes{{{"float", "fp32"},
                                                                                         {"Float", "fp32"},
                                                                                         {"Half", "fp16"},
                                                                                         {"BFloat16", "bf16"},
                                                                                         {"double", "fp64"},
                                                                                         {"Double", "fp64"},
                                                                                         {"half", "fp16"},
                                                                                         {"bfloat16", "bf16"},
                                                                                         {"float32", "fp32"},
                                                                                         {"float16", "fp16"}}};
  std::vector<std::string> out;
  const auto is_of_word = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  for (auto at = cause.begin(); at != cause.end() && out.size() < 2;) {
    const auto begin = std::find_if(at, cause.end(), is_of_word);
    at = std::find_if_not(begin, cause.end(), is_of_word);
    const std::string_view word(begin, at);
    const auto* type =
        std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& known) { return known.first == word; });
    if (type != kTypes.end() && (out.empty() || out[0] != type->second)) out.emplace_back(type->second);
  }
  return out;
}

// Whether PyTorch's message names an integer or boolean type: "expected scalar type Long but found Float", "Input type
// (unsigned char) and bias type (float)".
bool names_integers(std::string_view cause) {
  static constexpr std::array<std::string_view, 11> kTypes = {"Byte", "Char",  "Short", "Int",  "Long", "Bool",
                                                              "char", "short", "int",   "long", "bool"};
  const auto is_of_word = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  for (auto at = cause.begin(); at != cause.end();) {
    const auto begin = std::find_if(at, cause.end(), is_of_word);
    at = std::find_if_not(begin, cause.end(), is_of_word);
    if (std::find(kTypes.begin(), kTypes.end(), std::string_view(begin, at)) != kTypes.end()) return true;
  }
  return false;
}

// Advice for mismatched dtypes.
std::string type_advice(const std::vector<at::Tensor>& inputs, bool is_half_file, const char* elsewhere) {
  const bool are_whole =
      std::any_of(inputs.begin(), inputs.end(), [](const auto& input) { return input.scalar_type() == at::kFloat; });
  if (is_half_file && are_whole) {
    return ". The file has parameters in 16 bits, and inputs are cast only in a run in 16 bits: set fp16.enabled or "
           "bf16.enabled, or export the model with .float()";
  }
  return fmt::format(
      ". A trace keeps the dtypes of its export, a script those that it names (torch.zeros without a dtype creates "
      "fp32): export it in the dtype of this run, or {}",
      elsewhere);
}

}  // namespace

std::string describe_type_mismatch(const torch::jit::Module& model, const std::exception& error) {
  const auto types = types_in(file::cause_of(error));
  if (types.size() < 2) return {};
  const auto* of_libtorch = dynamic_cast<const c10::Error*>(&error);
  const auto failed =
      locate(model, traceback_in(of_libtorch != nullptr ? of_libtorch->what_without_backtrace() : error.what()));
  if (!failed) return {};
  std::string_view name = dtypes::operator_name(failed->node);
  if (const auto space = name.rfind("::"); space != std::string_view::npos) name.remove_prefix(space + 2);
  return fmt::format("{}: {} takes operands of one type, and got {} and {}", failed->module, name, types[0], types[1]);
}

std::string describe_size_mismatch(const std::vector<at::Tensor>& inputs, const std::vector<RecordedInput>& recorded) {
  for (size_t i = 0; i < std::min(inputs.size(), recorded.size()); ++i) {
    if (recorded[i].name.empty() || inputs[i].dim() == 0) continue;
    const auto sample = inputs[i].sizes().slice(1);
    if (sample == at::IntArrayRef(recorded[i].shape)) continue;
    return fmt::format("argument '{}' has samples of the size [{}], and the model file records [{}]", recorded[i].name,
                       fmt::join(sample, ", "), fmt::join(recorded[i].shape, ", "));
  }
  return {};
}

std::string forward_advice(const std::string& cause, const std::vector<at::Tensor>& inputs, bool is_half_file,
                           at::DeviceType device) {
  const auto contains = [&](const char* words) { return cause.find(words) != std::string::npos; };
  const bool is_autocast = at::autocast::is_autocast_enabled(device);
  const char* elsewhere = is_autocast ? "train it in fp32" : "train it in fp32 or with torch_autocast";
  if (contains("not implemented for 'Half'") || contains("not implemented for 'BFloat16'") ||
      contains("Low precision dtypes")) {
    return fmt::format(". PyTorch does not have this operator in 16 bits on this device: {}", elsewhere);
  }
  if (contains("forward() Expected a value of type")) {
    return " The data's arrays are passed one by one, as tensors: wrap the model in a module whose forward accepts "
           "tensors";
  }
  if (contains("index out of range in self")) {
    return ". An index must be a row of its table: does the model have as many ids, or positions, as the data uses?";
  }
  if (contains("Parametrization is not working with scripting")) {
    return " PyTorch cannot script modules of torch.nn.utils.parametrizations: trace the model";
  }
  if (contains("does not require grad and does not have a grad_fn") && !at::GradMode::is_enabled()) {
    return ". An evaluation computes without gradients: let forward compute gradients (torch.autograd.grad) only in "
           "training mode";
  }
  if (contains("arguments don't support automatic differentiation")) {
    return " A trace loses torch.no_grad(): script the model, or trace it in eval mode if that leaves this part out "
           "(spectral_norm then keeps its current vectors)";
  }
  if (contains("must match the size of tensor") || contains("must match the existing size") ||
      contains("must match except") || contains("is invalid for input of size") ||
      contains("to match target batch_size")) {
    return ". If this is a trace: sizes that Python read as numbers (len(x), int(x.shape[0])) are constants from its "
           "example inputs; trace with this run's micro batch and length, use x.shape[0] itself, or script the model";
  }
  const bool is_lstm = contains("primitive descriptor for the LSTM");  // oneDNN's message for mismatched dtypes
  if (is_lstm || contains("dtype") || contains("scalar type") || contains("Input type (")) {
    if (names_integers(cause)) {
      return ". Arrays of floats are cast to the dtype of the run, arrays of integers and booleans are not: save ids "
             "and class labels as int64, and numeric inputs (pixels) as float32, or call .float() in forward";
    }
    return type_advice(inputs, is_half_file, elsewhere);
  }
  return "";
}

}  // namespace dslaunch::runtime::model::torchscript
