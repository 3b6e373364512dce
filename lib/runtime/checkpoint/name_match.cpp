#include "runtime/checkpoint/name_match.hpp"

#include <algorithm>
#include <map>

#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "runtime/state/tensor_text.hpp"

namespace dslaunch::runtime {
namespace {

constexpr size_t kMaxNames = 20;

using ByName = std::map<std::string, const SavedTensor*>;

ByName by_name(const std::vector<SavedTensor>& tensors) {
  ByName out;
  for (const auto& tensor : tensors) out[tensor.name] = &tensor;
  return out;
}

std::vector<std::string> names_missing_in(const ByName& there, const std::vector<SavedTensor>& tensors) {
  std::vector<std::string> out;
  for (const auto& tensor : tensors) {
    if (!there.count(tensor.name)) out.push_back(tensor.name);
  }
  return out;
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() > end.size() && text.compare(text.size() - end.size() - 1, end.size() + 1, "." + end) == 0;
}

// A prefix that only one side has ("module.", "model.") or a small difference in spelling.
bool is_near(const std::string& a, const std::string& b) {
  return ends_with(a, b) || ends_with(b, a) || !nearest_names(a, {b}).empty();
}

// Every saved name is paired at most once, with the first similar model name of the same shape. Only for names that
// will be shown: comparing thousands with thousands takes minutes.
void pair_near_misses(NameMatch& match, const ByName& model, const ByName& saved) {
  auto left = match.only_saved;
  for (size_t i = 0; i < std::min(match.only_model.size(), kMaxNames); ++i) {
    const auto& name = match.only_model[i];
    const auto found = std::find_if(left.begin(), left.end(), [&](const std::string& other) {
      return model.at(name)->shape == saved.at(other)->shape && is_near(name, other);
    });
    if (found == left.end()) continue;
    match.near.emplace_back(name, *found);
    left.erase(found);
  }
}

template <class Items, class Describe>
std::string join_some(const Items& items, const char* separator, Describe describe) {
  std::string out;
  const size_t shown = std::min(items.size(), kMaxNames);
  for (size_t i = 0; i < shown; ++i) out += (i ? separator : "") + describe(items[i]);
  if (items.size() > shown) out += fmt::format(" and {} more", items.size() - shown);
  return out;
}

}  // namespace

NameMatch match_names(const std::vector<SavedTensor>& model, const std::vector<SavedTensor>& saved) {
  const ByName models = by_name(model), saveds = by_name(saved);
  NameMatch match{names_missing_in(saveds, model), names_missing_in(models, saved), {}, {}};
  for (const auto& tensor : model) {
    const auto found = saveds.find(tensor.name);
    if (found != saveds.end() && found->second->shape != tensor.shape) {
      match.shapes.push_back({tensor.name, found->second->shape, tensor.shape});
    }
  }
  pair_near_misses(match, models, saveds);
  return match;
}

std::string list_names(const std::vector<std::string>& names) {
  return join_some(names, ", ", [](const std::string& name) { return "'" + name + "'"; });
}

std::string describe_misfit(const NameMatch& match, const std::string& path) {
  std::string out = fmt::format("the checkpoint '{}' does not fit the model:", path);
  if (!match.only_model.empty()) out += "\n  missing in the checkpoint: " + list_names(match.only_model);
  if (!match.only_saved.empty()) out += "\n  missing in the model: " + list_names(match.only_saved);
  if (!match.near.empty()) {
    out += "\n  probably the same (model; checkpoint): " + join_some(match.near, ", ", [](const auto& pair) {
             return fmt::format("'{}'; '{}'", pair.first, pair.second);
           });
  }
  if (!match.shapes.empty()) {
    out += "\n  different shapes: " + join_some(match.shapes, ", ", [](const NameMatch::Shapes& shapes) {
             return fmt::format("'{}' is {} in the checkpoint and {} in the model", shapes.name,
                                shape_text(shapes.saved), shape_text(shapes.model));
           });
  }
  return out;
}

}  // namespace dslaunch::runtime
