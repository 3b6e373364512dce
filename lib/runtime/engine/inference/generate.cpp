#include "runtime/engine/inference/generate.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/device/random_state.hpp"
#include "runtime/engine/step/output_choice.hpp"

namespace dslaunch::runtime::engine::inference {
namespace {

constexpr int64_t kNumBytes = 256;

// Finds [batch, positions, classes] in forward's result.
at::Tensor find_logits(const model::ForwardResult& result, int64_t positions) {
  auto outputs = step::outputs_of(result);
  std::erase_if(outputs, [&](const step::NamedOutput& output) {
    const at::Tensor& t = output.value;
    return !t.is_floating_point() || t.dim() < 2 || t.size(-1) < kNumBytes || t.numel() / t.size(-1) != positions;
  });
  if (!outputs.empty()) return step::choose_output(outputs, result.has_own_names, "", "dslaunch infer").value;
  throw UserError(ExitCode::kBadInput,
                  fmt::format("the model does not return logits of at least {} classes for each of the {} tokens, so "
                              "it cannot continue a text; export it with --returns loss_logits, or let forward return "
                              "(loss, logits), and train that model",
                              kNumBytes, positions));
}

void require_bytes(int64_t num_classes, const std::string& tokenizer) {
  if (num_classes <= kMaxByteClasses) return;
  const std::string advice =
      tokenizer.empty()
          ? "write it with 'dslaunch consolidate' and generate in Python, with the tokenizer that made its "
            "data (tools/tokenize --tokenizer)"
          : fmt::format(
                "write it with 'dslaunch consolidate --hf' and generate with transformers; its "
                "tokenizer is that of {}",
                tokenizer);
  throw UserError(ExitCode::kBadInput,
                  fmt::format("the model's vocabulary has {} tokens, so they are not bytes, and 'dslaunch infer' "
                              "continues texts byte by byte; {}",
                              num_classes, advice));
}

// As the export has recorded the arguments: one sample of each is a list of tokens.
void require_tokens_as_inputs(const model::InputSignature& inputs) {
  for (const auto& recorded : inputs.recorded) {
    const auto own = std::find(inputs.names.begin(), inputs.names.end(), recorded.name);
    const bool is_required = own - inputs.names.begin() < static_cast<std::ptrdiff_t>(inputs.num_required);
    const bool is_integer = recorded.dtype.find("int") != recorded.dtype.npos;
    if (own == inputs.names.end() || !is_required || (is_integer && recorded.shape.size() == 1)) continue;
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("the model does not take texts: a sample of its argument '{}' is {} of the size [{}], as "
                    "the model file records, and 'dslaunch infer' continues lists of tokens",
                    recorded.name, recorded.dtype, fmt::join(recorded.shape, ", ")));
  }
}

// Tokens below this are rows of the model's tables, as far as its graph shows them.
int64_t size_of_vocabulary(const model::ModelFacts& facts) {
  int64_t size = kNumBytes;
  for (const auto& limit : facts.index_limits) {
    if (limit.input < facts.inputs.num_required && !limit.ignored) size = std::min(size, limit.bound);
  }
  return size;
}

void require_token(int64_t token, int64_t vocabulary) {
  if (token < vocabulary) return;
  throw UserError(ExitCode::kBadInput,
                  fmt::format("the text has the byte {}{}, and the model's vocabulary has {} tokens: 'dslaunch infer' "
                              "continues texts byte by byte",
                              token, token > ' ' && token < 127 ? fmt::format(" ('{}')", static_cast<char>(token)) : "",
                              vocabulary));
}

// A graph does not distinguish a table of positions from other tables, so the maximum context is found by trial:
// forward rejects inputs that are too long.
bool accepts(model::Model& model, int64_t length) {
  try {
    at::Tensor ids = at::zeros({1, length}, at::kLong);
    model.runnable->forward(std::vector<at::Tensor>(model.facts.inputs.num_required, ids));
    return true;
  } catch (const UserError&) {
    return false;
  }
}

int64_t find_context(model::Model& model) {
  constexpr int64_t kMaxLength = 4096;
  int64_t good = 1;
  while (good < kMaxLength && accepts(model, good * 2)) good *= 2;
  for (int64_t step = good / 2; step > 0; step /= 2) {
    if (good + step <= kMaxLength && accepts(model, good + step)) good += step;
  }
  return good;
}

int64_t pick(const at::Tensor& logits, double temperature) {
  const at::Tensor bytes = logits.narrow(0, 0, kNumBytes).to(at::kDouble);
  const at::Tensor best = bytes.max();
  if (!at::isfinite(best).item<bool>()) {
    throw UserError(ExitCode::kBadInput, "the model's logits are not finite: did its training diverge?");
  }
  if (temperature == 0) return bytes.argmax().item<int64_t>();
  // Subtracts the maximum, so that no temperature makes a logit infinite.
  return at::multinomial(at::softmax(((bytes - best) / temperature).to(at::kFloat), 0), 1).item<int64_t>();
}

}  // namespace

void generate(model::Model& model, const GenerateOptions& options, const std::function<void(char)>& on_byte) {
  if (options.prompt.empty()) throw UserError(ExitCode::kUsage, "the prompt is empty; pass --prompt TEXT");
  require_tokens_as_inputs(model.facts.inputs);
  const int64_t vocabulary = size_of_vocabulary(model.facts);
  for (const unsigned char byte : options.prompt) require_token(byte, vocabulary);
  at::NoGradGuard no_grad;
  model.runnable->train(false);
  device::seed_random_state(options.seed, 0, at::kCPU);
  const int64_t context = options.context > 0 ? options.context : find_context(model);
  std::vector<int64_t> tokens;
  for (unsigned char byte : options.prompt) tokens.push_back(byte);
  for (int64_t i = 0; i < options.num_tokens; ++i) {
    const auto length = std::min<int64_t>(context, static_cast<int64_t>(tokens.size()));
    at::Tensor ids = at::tensor(at::ArrayRef<int64_t>(tokens).slice(tokens.size() - length), at::kLong).unsqueeze(0);
    const auto result = model.runnable->forward(std::vector<at::Tensor>(model.facts.inputs.num_required, ids));
    const at::Tensor logits = find_logits(result, length);
    require_bytes(logits.size(-1), options.tokenizer);
    tokens.push_back(pick(logits.reshape({length, -1})[length - 1], options.temperature));
    on_byte(static_cast<char>(tokens.back()));
    if (i + 1 < options.num_tokens) require_token(tokens.back(), vocabulary);
  }
}

}  // namespace dslaunch::runtime::engine::inference
