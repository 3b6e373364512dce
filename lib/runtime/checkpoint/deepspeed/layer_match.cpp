#include "runtime/checkpoint/deepspeed/layer_match.hpp"

#include <algorithm>
#include <set>

#include "runtime/checkpoint/deepspeed/tied_modules.hpp"

namespace dslaunch::runtime::deepspeed {
namespace {

using Shapes = std::map<std::string, std::vector<int64_t>>;  // of parameters, by their names inside a module

std::map<int, Shapes> layers_of(const std::vector<SavedTensor>& saved) {
  std::map<int, Shapes> out;
  for (const auto& tensor : saved) {
    if (tensor.is_buffer) continue;
    for (const auto& name : tensor.all_names()) {
      const auto [layer, inside] = split_layer_name(name);
      if (layer >= 0) out[layer][inside] = tensor.shape;
    }
  }
  return out;
}

struct Candidate {
  std::string name;
  Shapes parameters;
};

// All modules with parameters, in the order of the model's.
std::vector<Candidate> modules_of(const std::vector<SavedTensor>& model) {
  std::vector<Candidate> out;
  std::map<std::string, size_t> index;
  for (const auto& tensor : model) {
    if (tensor.is_buffer) continue;
    for (const auto& name : tensor.all_names()) {
      for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
        const std::string module = name.substr(0, dot);
        const auto [place, is_new] = index.emplace(module, out.size());
        if (is_new) out.push_back({module, {}});
        out[place->second].parameters[name.substr(dot + 1)] = tensor.shape;
      }
    }
  }
  return out;
}

bool is_inside(const std::string& name, const std::string& module) {
  return name.size() > module.size() && name[module.size()] == '.' && name.starts_with(module);
}

bool are_nested(const std::string& one, const std::string& other) {
  return one == other || is_inside(one, other) || is_inside(other, one);
}

class Matching {
 public:
  Matching(const std::map<int, Shapes>& layers, std::vector<Candidate> modules)
      : layers_(layers), modules_(std::move(modules)) {}

  std::optional<LayerNames> run() {
    std::vector<Shapes> kinds;
    for (const auto& [layer, parameters] : layers_) {
      if (std::find(kinds.begin(), kinds.end(), parameters) == kinds.end()) kinds.push_back(parameters);
    }
    // A large module first, so that a part of it is not taken for a small one.
    std::stable_sort(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
    for (const auto& kind : kinds) {
      if (!match(kind)) return std::nullopt;
    }
    return out_;
  }

 private:
  bool match(const Shapes& kind) {
    std::vector<int> layers;
    for (const auto& [layer, parameters] : layers_) {
      if (parameters == kind) layers.push_back(layer);
    }
    std::vector<std::string> names;
    for (const auto& module : modules_) {
      if (module.parameters == kind && is_free(module.name)) names.push_back(module.name);
    }
    if (names.size() != layers.size()) return false;
    for (size_t i = 0; i < layers.size(); ++i) out_[layers[i]] = names[i];
    return true;
  }

  bool is_free(const std::string& name) const {
    return std::none_of(out_.begin(), out_.end(), [&](const auto& taken) { return are_nested(name, taken.second); });
  }

  const std::map<int, Shapes>& layers_;
  const std::vector<Candidate> modules_;
  LayerNames out_;
};

}  // namespace

std::optional<LayerNames> match_layers(const std::vector<SavedTensor>& saved, const std::vector<SavedTensor>& model) {
  const auto layers = layers_of(saved);
  auto out = Matching(layers, modules_of(model)).run();
  if (!out) return std::nullopt;
  const bool has_all = std::all_of(model.begin(), model.end(), [&](const auto& tensor) {
    const auto names = tensor.all_names();
    return tensor.is_buffer || !tensor.trainable || std::any_of(names.begin(), names.end(), [&](const auto& name) {
             return std::any_of(out->begin(), out->end(),
                                [&](const auto& each) { return is_inside(name, each.second); });
           });
  });
  return has_all ? out : std::nullopt;
}

std::string rename_layer(const LayerNames& layers, const std::string& name) {
  const auto [layer, inside] = split_layer_name(name);
  const auto found = layers.find(layer);
  return found == layers.end() ? name : found->second + "." + inside;
}

}  // namespace dslaunch::runtime::deepspeed
