#include "runtime/checkpoint/deepspeed/tied_modules.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/parse_int.hpp"

namespace dslaunch::runtime::deepspeed {
namespace {

constexpr char kTied[] = "tied_modules.";

// "tied_modules.KEY.NAME" -> {KEY, NAME}; two empty texts for another name.
std::pair<std::string, std::string> split_tied_name(const std::string& name) {
  const size_t begin = sizeof kTied - 1, dot = name.find('.', begin);
  if (!name.starts_with(kTied) || dot == std::string::npos) return {};
  return {name.substr(begin, dot - begin), name.substr(dot + 1)};
}

std::string full_name(int layer, const std::string& name) {
  return fmt::format("{}.{}", layer, name);
}

}  // namespace

std::pair<int, std::string> split_layer_name(const std::string& name) {
  const size_t dot = name.find('.');
  const auto layer = dot == std::string::npos ? std::nullopt : parse_int<int>(name.substr(0, dot));
  if (!layer || *layer < 0) return {-1, ""};
  return {*layer, name.substr(dot + 1)};
}

TiedModules::TiedModules(const std::map<int, LayerTensors>& layers, const std::vector<const ModelStates*>& stages)
    : layers_(layers), listed_(stages.size()) {
  for (size_t stage = 0; stage < stages.size(); ++stage) collect(stage, *stages[stage]);
  find_layers();
}

TiedModules::Module& TiedModules::module_of(const std::string& key) {
  auto found = std::find_if(modules_.begin(), modules_.end(), [&](const auto& each) { return each.first == key; });
  if (found == modules_.end()) found = modules_.insert(modules_.end(), {key, {}});
  return found->second;
}

void TiedModules::collect(size_t stage, const ModelStates& model) {
  const auto meet = [&](const std::string& name) -> std::pair<Module*, std::string> {
    const auto [key, inside] = split_tied_name(name);
    if (key.empty()) {
      if (const int layer = split_layer_name(name).first; layer >= 0) listed_[stage].insert(layer);
      return {};
    }
    Module& module = module_of(key);
    if (module.stages.empty() || module.stages.back() != stage) module.stages.push_back(stage);
    return {&module, inside};
  };
  for (const auto& parameter : model.all_trainable()) {
    if (const auto [module, inside] = meet(parameter.name); module) module->shapes[inside] = parameter.shape;
  }
  for (const auto& name : model.buffers) {
    if (const auto [module, inside] = meet(name); module) module->buffers.insert(inside);
  }
}

bool TiedModules::fits(const Module& module, int layer) const {
  const LayerTensors& tensors = layers_.at(layer);
  const bool has_parameters = std::all_of(module.shapes.begin(), module.shapes.end(), [&](const auto& each) {
    const auto found = tensors.find(each.first);
    return found != tensors.end() && found->second.place(each.first).shape == each.second;
  });
  return has_parameters && std::all_of(module.buffers.begin(), module.buffers.end(),
                                       [&](const auto& name) { return tensors.count(name) > 0; });
}

bool TiedModules::are_equal(int first, int second, const std::string& name) const {
  const auto &one = layers_.at(first), &other = layers_.at(second);
  const auto here = one.find(name), there = other.find(name);
  if (here == one.end() || there == other.end()) return false;
  const at::Tensor a = here->second.read(name), b = there->second.read(name);
  return a.scalar_type() == b.scalar_type() && a.equal(b);
}

// Layers with the module's parameters; those that have a weight in common are in one group.
std::vector<std::vector<int>> TiedModules::groups_like(const Module& module, const std::set<int>& free) const {
  std::vector<std::vector<int>> out;
  for (const int layer : free) {
    if (!fits(module, layer)) continue;
    const auto group = std::find_if(out.begin(), out.end(), [&](const auto& members) {
      return std::any_of(module.shapes.begin(), module.shapes.end(),
                         [&](const auto& each) { return are_equal(members.front(), layer, each.first); });
    });
    if (group == out.end()) {
      out.push_back({layer});
    } else {
      group->push_back(layer);
    }
  }
  return out;
}

void TiedModules::find_layers() {
  std::set<int> free;  // nothing is listed under their number
  for (const auto& [layer, tensors] : layers_) {
    const bool is_listed =
        std::any_of(listed_.begin(), listed_.end(), [number = layer](const auto& of) { return of.count(number) > 0; });
    if (!is_listed && !tensors.empty()) free.insert(layer);
  }
  for (auto& [key, module] : modules_) {
    const auto groups = groups_like(module, free);
    if (groups.empty()) continue;  // it is called through functions only
    // Modules are in the order of their first layers, and so are the groups.
    const auto num_alike =
        std::count_if(modules_.begin(), modules_.end(), [&shapes = module.shapes](const auto& other) {
          return other.second.layers.empty() && other.second.shapes == shapes;
        });
    if (groups.size() > 1 && groups.size() != static_cast<size_t>(num_alike)) {
      std::vector<int> firsts;
      for (const auto& group : groups) firsts.push_back(group.front());
      throw UserError(
          ExitCode::kBadInput,
          fmt::format(
              "'{}': it cannot be told which layers are the tied module '{}': layers {} all have its parameters, "
              "with different values",
              layers_.at(firsts.front()).begin()->second.file->path(), key, fmt::join(firsts, ", ")));
    }
    module.layers = groups.front();
    for (const int layer : module.layers) free.erase(layer);
  }
}

const TiedModules::Module* TiedModules::find(const std::string& name, std::string& inside) const {
  auto [key, rest] = split_tied_name(name);
  const auto found = std::find_if(modules_.begin(), modules_.end(),
                                  [&, wanted = key](const auto& each) { return each.first == wanted; });
  inside = std::move(rest);
  return key.empty() || found == modules_.end() ? nullptr : &found->second;
}

// Between the layers that earlier and later stages name.
bool TiedModules::lies_in(int layer, size_t stage) const {
  for (size_t other = 0; other < listed_.size(); ++other) {
    if (listed_[other].empty() || other == stage) continue;
    if (other < stage ? *listed_[other].rbegin() > layer : *listed_[other].begin() < layer) return false;
  }
  return true;
}

TiedModules::Place TiedModules::place(size_t stage, const std::string& name) const {
  std::string inside;
  const Module* module = find(name, inside);
  if (!module) return {name};
  const bool is_first_stage = stage == module->stages.front();
  if (module->layers.empty()) return {name, !is_first_stage};
  const int first = module->layers.front();
  if (is_first_stage) return {full_name(first, inside)};
  // What its tied_weight_attr does not name, such as a bias, each stage trains for itself.
  for (const int layer : module->layers) {
    if (layer != first && lies_in(layer, stage) && !are_equal(first, layer, inside)) return {full_name(layer, inside)};
  }
  return {full_name(first, inside), true};
}

std::vector<std::string> TiedModules::buffer_names(const std::string& name) const {
  std::string inside;
  const Module* module = find(name, inside);
  if (!module) return {name};
  std::vector<std::string> out;
  for (const int layer : module->layers) out.push_back(full_name(layer, inside));
  return out;
}

std::string TiedModules::kept_name(int layer, const std::string& name) const {
  for (const auto& [key, module] : modules_) {
    if (std::find(module.layers.begin(), module.layers.end(), layer) == module.layers.end()) continue;
    const int first = module.layers.front();
    return layer != first && are_equal(first, layer, name) ? full_name(first, name) : "";
  }
  return "";
}

}  // namespace dslaunch::runtime::deepspeed
