#include "runtime/checkpoint/name_match.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/format.hpp"
#include "base/join_some.hpp"
#include "base/nearest_name.hpp"
#include "runtime/state/tensor_text.hpp"

namespace dslaunch::runtime {
namespace {

constexpr size_t kMaxNames = 5;

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

// The indices of every list of modules: "blocks" -> 0, 1 of blocks.0.w, blocks.1.w. An inner list counts over all outer
// ones: "blocks.*.heads".
std::map<std::string, std::set<std::string>> indices_of_lists(const std::vector<SavedTensor>& tensors) {
  std::map<std::string, std::set<std::string>> out;
  for (const auto& tensor : tensors) {
    std::string list;
    for (size_t begin = 0; begin < tensor.name.size();) {
      const size_t end = std::min(tensor.name.find('.', begin), tensor.name.size());
      std::string part = tensor.name.substr(begin, end - begin);
      if (!list.empty() && !part.empty() && part.find_first_not_of("0123456789") == part.npos) {
        out[list].insert(std::exchange(part, "*"));
      }
      list += (list.empty() ? "" : ".") + part;
      begin = end + 1;
    }
  }
  return out;
}

std::vector<NameMatch::Repeats> different_repeats(const std::vector<SavedTensor>& model,
                                                  const std::vector<SavedTensor>& saved) {
  std::vector<NameMatch::Repeats> out;
  const auto saved_lists = indices_of_lists(saved);
  for (const auto& [list, indices] : indices_of_lists(model)) {
    const auto other = saved_lists.find(list);
    if (other == saved_lists.end() || other->second.size() == indices.size()) continue;
    out.push_back({list, other->second.size(), indices.size()});
  }
  return out;
}

// The two sizes that most of the tensors differ in: the width of the model.
struct Sizes {
  int64_t saved = 0, model = 0;
  size_t num_tensors = 0;
};
Sizes most_different_sizes(const std::vector<NameMatch::Shapes>& shapes) {
  std::map<std::pair<int64_t, int64_t>, size_t> counts;
  for (const auto& each : shapes) {
    std::set<std::pair<int64_t, int64_t>> pairs;
    for (size_t i = 0; each.saved.size() == each.model.size() && i < each.saved.size(); ++i) {
      if (each.saved[i] != each.model[i]) pairs.emplace(each.saved[i], each.model[i]);
    }
    for (const auto& pair : pairs) ++counts[pair];
  }
  Sizes most;
  for (const auto& [pair, count] : counts) {
    if (count > most.num_tensors) most = {pair.first, pair.second, count};
  }
  return most;
}

// "; it has 4 'blocks' and the model 2"
std::string describe_difference(const NameMatch& match) {
  std::string out;
  for (const auto& list : match.repeats) {
    out += fmt::format("; it has {} '{}' and the model {}", list.saved, list.list, list.model);
  }
  if (const Sizes sizes = most_different_sizes(match.shapes); sizes.num_tensors > 1) {
    out += fmt::format("; where it has the size {} the model has {} (in {} tensors)", sizes.saved, sizes.model,
                       sizes.num_tensors);
  }
  return out;
}

}  // namespace

NameMatch match_names(const std::vector<SavedTensor>& model, const std::vector<SavedTensor>& saved) {
  const ByName models = by_name(model), saveds = by_name(saved);
  NameMatch match{
      names_missing_in(saveds, model), names_missing_in(models, saved), {}, {}, different_repeats(model, saved)};
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
  return join_some(names, kMaxNames, ", ", [](const std::string& name) { return "'" + name + "'"; });
}

std::string describe_misfit(const NameMatch& match, const std::string& path) {
  std::string out = fmt::format("the checkpoint '{}' does not fit the model{}:", path, describe_difference(match));
  if (!match.only_model.empty()) out += "\n  missing in the checkpoint: " + list_names(match.only_model);
  if (!match.only_saved.empty()) out += "\n  missing in the model: " + list_names(match.only_saved);
  if (!match.near.empty()) {
    out += "\n  probably the same (model; checkpoint): " + join_some(match.near, kMaxNames, ", ", [](const auto& pair) {
             return fmt::format("'{}'; '{}'", pair.first, pair.second);
           });
  }
  if (!match.shapes.empty()) {
    out += "\n  different shapes: " + join_some(match.shapes, kMaxNames, ", ", [](const NameMatch::Shapes& shapes) {
             return fmt::format("'{}' is {} in the checkpoint and {} in the model", shapes.name,
                                shape_text(shapes.saved), shape_text(shapes.model));
           });
  }
  return out;
}

}  // namespace dslaunch::runtime
