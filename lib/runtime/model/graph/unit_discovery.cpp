#include "runtime/model/graph/unit_discovery.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"

namespace dslaunch::runtime::model::graph {
namespace {

// A leaf module outside the blocks with at least this many elements (an embedding, a head) is a unit of its own.
constexpr int64_t kLargeLeafNumel = 1 << 16;

bool has_parameters(const torch::jit::Module& module) {
  return module.parameters().size() > 0;
}

int64_t num_elements(const torch::jit::Module& module) {
  int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += parameter.numel();
  return count;
}

bool is_callable(const torch::jit::Module& module) {
  return module.find_method("forward").has_value();
}

std::string join(const std::string& parent, const std::string& child) {
  return parent.empty() ? child : parent + "." + child;
}

// A layer of PyTorch itself has nothing inside that recomputation could save.
bool is_single_layer(const torch::jit::Module& module) {
  const auto name = module.type()->name();
  return module.children().size() == 0 && name && name->qualifiedName().rfind("__torch__.torch.nn.", 0) == 0;
}

void find_automatic(const torch::jit::Module& container, const std::string& path, std::vector<UnitCandidate>& out) {
  std::map<std::string, int> repeats;
  for (const auto& child : container.named_children()) repeats[class_name(child.value)] += 1;
  for (const auto& child : container.named_children()) {
    if (!has_parameters(child.value)) continue;
    const std::string child_path = join(path, child.name);
    const bool is_leaf = child.value.children().size() == 0;
    const bool repeated = repeats[class_name(child.value)] > 1;
    const bool large_leaf = is_leaf && num_elements(child.value) >= kLargeLeafNumel;
    if (is_callable(child.value) && (repeated || large_leaf)) {
      out.push_back({child_path, child.value, repeated && !is_single_layer(child.value)});
    } else {
      find_automatic(child.value, child_path, out);
    }
  }
}

void find_named(const torch::jit::Module& container, const std::string& path, const std::vector<std::string>& names,
                std::vector<UnitCandidate>& out, std::vector<std::string>& known) {
  for (const auto& child : container.named_children()) {
    const std::string child_path = join(path, child.name);
    const std::string child_class = class_name(child.value);
    known.push_back(child_path);
    known.push_back(child_class);
    const bool named =
        std::any_of(names.begin(), names.end(), [&](const auto& n) { return n == child_path || n == child_class; });
    if (named && is_callable(child.value) && has_parameters(child.value)) {
      out.push_back({child_path, child.value});
    } else {
      find_named(child.value, child_path, names, out, known);
    }
  }
}

void add_modules(const torch::jit::Module& module, const std::string& path, std::vector<ModuleInfo>& out) {
  out.push_back({path, class_name(module), module._ivalue().get()});
  for (const auto& child : module.named_children())
    add_modules(child.value, path.empty() ? child.name : path + "." + child.name, out);
}

}  // namespace

std::vector<ModuleInfo> module_tree(const torch::jit::Module& model) {
  std::vector<ModuleInfo> out;
  add_modules(model, "", out);
  return out;
}

std::string class_name(const torch::jit::Module& module) {
  const auto name = module.type()->name();
  return name ? name->name() : std::string();
}

std::vector<UnitCandidate> find_unit_candidates(const torch::jit::Module& model,
                                                const std::vector<std::string>& names) {
  std::vector<UnitCandidate> out;
  if (names.empty()) {
    find_automatic(model, "", out);
    return out;
  }
  std::vector<std::string> known;
  find_named(model, "", names, out, known);
  for (const auto& name : names) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw UserError(ExitCode::kBadInput, fmt::format("units: the model does not have a class or module '{}'{}", name,
                                                       did_you_mean(name, known, 2)));
    }
  }
  return out;
}

}  // namespace dslaunch::runtime::model::graph
