#include "runtime/engine/step/output_choice.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "runtime/state/tensor_text.hpp"

namespace dslaunch::runtime::engine::step {
namespace {

constexpr const char* kLogits = "logits";

const NamedOutput* find(const std::vector<NamedOutput>& outputs, const std::string& name) {
  const auto found = std::find_if(outputs.begin(), outputs.end(), [&](const auto& one) { return one.name == name; });
  return found == outputs.end() ? nullptr : &*found;
}

std::vector<std::string> names_of(const std::vector<NamedOutput>& outputs) {
  std::vector<std::string> names;
  for (const auto& output : outputs) names.push_back(output.name);
  return names;
}

[[noreturn]] void refuse_missing(const std::vector<NamedOutput>& outputs, const std::string& wanted) {
  const bool is_one_tensor = outputs.size() == 1 && outputs[0].name.empty();
  throw UserError(ExitCode::kBadInput,
                  fmt::format("\"outputs\" in the config names '{}', but forward returned {}{}", wanted,
                              is_one_tensor ? "one tensor, " + describe(outputs) : describe(outputs),
                              is_one_tensor ? "; leave it out" : did_you_mean(wanted, names_of(outputs))));
}

[[noreturn]] void refuse_several(const std::vector<NamedOutput>& outputs, const std::string& whose) {
  throw UserError(ExitCode::kBadInput,
                  fmt::format("{} takes one of forward's outputs, and none of them is named 'logits': forward returned "
                              "{}; name the one to take in the config: \"outputs\": \"{}\"",
                              whose, describe(outputs), fmt::join(names_of(outputs), "\" | \"")));
}

bool may_be_outputs(const NamedOutput& output) {
  return output.value.dim() > 0 && output.value.is_floating_point();
}

}  // namespace

std::vector<NamedOutput> outputs_of(const model::ForwardResult& result) {
  std::vector<NamedOutput> outputs;
  const auto add = [&](const at::Tensor& value) {
    const size_t index = outputs.size();
    outputs.push_back({index < result.names.size() ? result.names[index] : "", value});
  };
  add(result.first);
  for (const auto& other : result.others) add(other);
  std::erase_if(outputs, [&](const auto& output) {
    return result.named_loss.defined() && output.value.is_same(result.named_loss);
  });
  return outputs;
}

std::string describe(const std::vector<NamedOutput>& outputs) {
  std::vector<std::string> texts;
  for (const auto& output : outputs) {
    const auto shape = type_and_shape(output.value);
    texts.push_back(output.name.empty() ? shape : fmt::format("'{}' {}", output.name, shape));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

NamedOutput choose_output(const std::vector<NamedOutput>& outputs, bool has_own_names, const std::string& wanted,
                          const std::string& whose) {
  if (!wanted.empty()) {
    if (const auto* named = find(outputs, wanted)) return *named;
    refuse_missing(outputs, wanted);
  }
  if (outputs.size() == 1) return outputs.front();
  if (const auto* logits = find(outputs, kLogits)) return *logits;
  if (has_own_names) {
    if (std::count_if(outputs.begin(), outputs.end(), may_be_outputs) != 1) refuse_several(outputs, whose);
    return *std::find_if(outputs.begin(), outputs.end(), may_be_outputs);
  }
  const auto first =
      std::find_if(outputs.begin(), outputs.end(), [](const auto& output) { return output.value.dim() > 0; });
  return first == outputs.end() ? outputs.front() : *first;
}

NamedOutput choose_output(const model::ForwardResult& result, const std::string& wanted, const std::string& whose) {
  const auto outputs = outputs_of(result);
  if (outputs.empty()) {
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("{} takes forward's outputs, but forward returned only its own loss; leave \"loss\" out "
                    "of the config, or let forward return the outputs",
                    whose));
  }
  return choose_output(outputs, result.has_own_names, wanted, whose);
}

std::string describe_choice(const model::ForwardResult& result, const NamedOutput& chosen, const std::string& whose) {
  if (result.names.size() < 2) return {};
  return fmt::format("{} takes {} of forward's outputs ({}); \"outputs\" in the config names another", whose,
                     describe({chosen}), describe(outputs_of(result)));
}

}  // namespace dslaunch::runtime::engine::step
