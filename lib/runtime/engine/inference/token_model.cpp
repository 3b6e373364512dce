#include "runtime/engine/inference/token_model.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "base/format.hpp"
#include "runtime/engine/step/output_choice.hpp"
#include "runtime/state/tensor_text.hpp"

namespace dslaunch::runtime::engine::inference {
namespace {

bool is_cut(const model::Model& model) {
  return model.facts.tokens && model.facts.tokens->ok();
}

// As the export has recorded the arguments: one sample of each is a list of tokens.
void require_tokens_as_inputs(const model::InputSignature& inputs) {
  for (const auto& recorded : inputs.recorded) {
    const auto own = std::find(inputs.names.begin(), inputs.names.end(), recorded.name);
    const bool is_required = own - inputs.names.begin() < static_cast<std::ptrdiff_t>(inputs.num_required);
    const bool is_integer = recorded.dtype.find("int") != recorded.dtype.npos;
    if (own == inputs.names.end() || !is_required || (is_integer && recorded.shape.size() == 1)) continue;
    throw UserError(ExitCode::kBadInput,
                    fmt::format("the model does not take texts: a sample of its argument '{}' is {} of the size [{}], "
                                "as the model file records",
                                recorded.name, recorded.dtype, fmt::join(recorded.shape, ", ")));
  }
}

bool has_logits(const at::Tensor& value, const at::Tensor& ids) {
  return value.is_floating_point() && value.dim() >= 2 && value.size(-1) > 1 &&
         value.numel() / value.size(-1) == ids.numel();
}

}  // namespace

TooManyTokens::TooManyTokens(int64_t given, int64_t most)
    : UserError(ExitCode::kBadInput, fmt::format("{} tokens are more than the model takes at once: {}", given, most)) {}

TokenModel::TokenModel(model::Model& model, at::Device device) : model_(model), device_(device) {
  if (!is_cut(model)) require_tokens_as_inputs(model.facts.inputs);
  const size_t ids = has_encoder() ? 1 : 0;
  for (const auto& limit : model.facts.length_limits) {
    if (limit.input == ids && limit.dim == 1) max_tokens_ = std::min(max_tokens_.value_or(limit.bound), limit.bound);
  }
}

bool TokenModel::has_encoder() const {
  return is_cut(model_) && (*model_.facts.tokens)->has_encoder;
}

std::optional<int64_t> TokenModel::vocabulary() const {
  std::optional<int64_t> size;
  for (const auto& limit : model_.facts.index_limits) {
    if (limit.input >= model_.facts.inputs.num_required || limit.ignored) continue;
    size = std::min(size.value_or(limit.bound), limit.bound);
  }
  return size;
}

at::Tensor TokenModel::run(const at::Tensor& ids, const at::Tensor& encoder_ids) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> arguments;
  if (has_encoder()) arguments.push_back(encoder_ids.to(device_));
  const size_t count = is_cut(model_) ? 1 : model_.facts.inputs.num_required;
  arguments.insert(arguments.end(), count, ids.to(device_));
  const auto result = model_.runnable->forward(arguments);
  auto outputs = step::outputs_of(result);
  std::erase_if(outputs, [&](const auto& output) { return !has_logits(output.value, ids); });
  if (outputs.empty()) {
    const bool knows_why = model_.facts.tokens && !model_.facts.tokens->ok();
    throw UserError(ExitCode::kBadInput,
                    fmt::format("the model has no logits for each of the {} tokens: forward returned {}{}; let it "
                                "return them (tools/export --returns loss_logits), or compute the loss by "
                                "cross_entropy of them",
                                ids.size(1), types_and_shapes({result.first}),
                                knows_why ? ", and " + model_.facts.tokens->error() : ""));
  }
  const at::Tensor logits = step::choose_output(outputs, result.has_own_names, "", "dslaunch infer").value;
  return logits.reshape({ids.size(0), ids.size(1), -1});
}

at::Tensor TokenModel::logits(const at::Tensor& ids, const at::Tensor& encoder_ids) {
  const int64_t length = ids.size(1);
  if (max_tokens_ && length > *max_tokens_) throw TooManyTokens(length, *max_tokens_);
  try {
    return run(ids, encoder_ids);
  } catch (const UserError&) {
    find_max_tokens(length, encoder_ids);
    if (!max_tokens_) throw;
  }
  throw TooManyTokens(length, *max_tokens_);
}

bool TokenModel::takes(int64_t length, const at::Tensor& encoder_ids) {
  try {
    run(at::zeros({1, length}, at::kLong), encoder_ids.defined() ? encoder_ids.narrow(0, 0, 1) : encoder_ids);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

// A graph does not distinguish a table of positions from other tables, so the number is found by trial: forward rejects
// inputs that are too long.
void TokenModel::find_max_tokens(int64_t refused, const at::Tensor& encoder_ids) {
  if (takes(refused, encoder_ids) || !takes(1, encoder_ids)) return;  // it is not the length
  int64_t good = 1;
  while (refused - good > 1) {
    const int64_t middle = good + (refused - good) / 2;
    (takes(middle, encoder_ids) ? good : refused) = middle;
  }
  max_tokens_ = good;
}

}  // namespace dslaunch::runtime::engine::inference
