#include "runtime/engine/run/run_samples.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/scope_exit.hpp"
#include "runtime/device/random_state.hpp"
#include "runtime/engine/inference/generate_texts.hpp"
#include "runtime/engine/run/metric_command.hpp"
#include "runtime/sharding/all_gather_object.hpp"

namespace dslaunch::runtime::engine::run {
namespace {

std::vector<inference::Prompt> prompts_of(const config::Samples& samples) {
  if (!samples.prompts_file.empty()) return inference::read_prompts(samples.prompts_file);
  std::vector<inference::Prompt> out;
  for (const auto& prompt : samples.prompts) {
    out.push_back({prompt.text, prompt.ids, !prompt.ids.empty(),
                   fmt::format("prompt {} of 'train.samples'", out.size() + 1), prompt.reference});
  }
  return out;
}

inference::ModelSource source_of(const config::Samples& samples, const SampledModel& of) {
  return {.path = of.path,
          .weights = {},
          .tokenizer = samples.tokenizer,
          .nvme_path = {},
          .device = of.device,
          .dtype = of.compute_dtype,
          .tokenizer_option = "'train.samples.tokenizer'",
          .ids_option = "{\"ids\": [1, 2]} in 'train.samples.prompts'",
          .context_option = ""};
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// Without a reference: not a number.
double exact_match(const std::vector<EvaluationSample>& texts) {
  double matches = 0, references = 0;
  for (const auto& each : texts) {
    if (!each.reference) continue;
    references += 1;
    matches += trimmed(each.text) == trimmed(*each.reference) ? 1 : 0;
  }
  return references > 0 ? matches / references : std::numeric_limits<double>::quiet_NaN();
}

EvaluationSample sample_of(const inference::Prompt& prompt, const inference::WrittenText& written) {
  const auto ids = [](const std::vector<int64_t>& of) { return fmt::format("{}", fmt::join(of, " ")); };
  const bool has_text = !prompt.has_ids || !written.text.empty();
  return {prompt.has_ids ? ids(prompt.ids) : prompt.text, has_text ? written.text : ids(written.ids), prompt.reference,
          written.finish};
}

}  // namespace

RunSamples::RunSamples(const config::Train& train, const config::Checkpoint& checkpoint, SampledModel of,
                       comm::Communicator& world, std::function<bool()> stop_requested)
    : samples_(*train.samples),
      of_(std::move(of)),
      world_(world),
      stop_requested_(std::move(stop_requested)),
      is_writer_(world.rank() == 0) {
  for (const auto& metric : train.metrics) elsewhere_.insert("eval_" + metric.name);
  if (train.early_stopping) decisive_.push_back(train.early_stopping->metric);
  if (checkpoint.keep_best) decisive_.push_back(checkpoint.keep_best->metric);
  std::erase_if(decisive_, [&](const auto& name) { return elsewhere_.count(name) > 0; });
  if (!is_writer_) return;
  prompts_ = prompts_of(samples_);
  model_ = std::make_unique<inference::TrainedModel>(of_.model, source_of(samples_, of_), of_.dtypes,
                                                     of_.engine.gathers_units());
}

void RunSamples::try_prompts() {
  const auto written = write(/*num_tokens=*/1);
  if (is_writer_ && !stops_) require_values(written.values);
  has_worked_ = true;
}

WrittenSamples RunSamples::write() {
  try {
    auto written = write(samples_.num_tokens);
    has_worked_ = true;
    return written;
  } catch (const UserError& error) {  // on rank 0, after the ranks' last exchange
    if (!has_worked_) throw;
    log::warning("no samples at this evaluation: {}", error.what());
    return {};
  }
}

// `value`: of the command.
void RunSamples::add_value(NamedValues& values, NamedValues::value_type value) const {
  const bool is_taken =
      elsewhere_.count("eval_" + value.first) > 0 ||
      std::any_of(values.begin(), values.end(), [&](const auto& other) { return other.first == value.first; });
  if (is_taken) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("train.samples.metric_command: the command prints '{}', and the run has another value "
                                "named 'eval_{}'; choose another name",
                                value.first, value.first));
  }
  values.push_back(std::move(value));
}

void RunSamples::require_values(const NamedValues& values) const {
  for (const auto& name : decisive_) {
    const bool is_there =
        std::any_of(values.begin(), values.end(), [&](const auto& value) { return "eval_" + value.first == name; });
    if (is_there) continue;
    const std::string value = name.substr(std::string_view("eval_").size());
    throw UserError(ExitCode::kBadInput,
                    fmt::format("train.samples: the run decides by '{}' (train.early_stopping, checkpoint.keep_best), "
                                "and {}",
                                name,
                                value == config::kExactMatch ? "no prompt has a reference"
                                                             : "metric_command has printed no '" + value + "'"));
  }
}

WrittenSamples RunSamples::write(int64_t num_tokens) {
  const at::NoGradGuard no_grad;
  stops_ = false;
  const at::Tensor random_state = device::save_random_state(of_.device);
  UnitParameters& units = of_.engine.begin_generation();
  const ScopeExit end([&] {
    of_.engine.end_generation();
    device::restore_random_state(random_state, of_.device);
  });
  if (is_writer_) return write_on_rank_0(num_tokens, units);
  of_.engine.gathers_units() ? follow(units) : void(inference::whole_parameters(of_.model.facts.table, units));
  return {};
}

WrittenSamples RunSamples::write_on_rank_0(int64_t num_tokens, UnitParameters& units) {
  if (!of_.engine.gathers_units()) {
    model_->use(inference::whole_parameters(of_.model.facts.table, units));
    return generate(num_tokens);
  }
  model_->use_units(units, [this] { any_forward(true); });
  const auto end = [this] {
    model_->end_units();
    any_forward(false);
  };
  try {
    auto written = generate(num_tokens);
    end();
    return written;
  } catch (const UserError&) {
    end();
    throw;
  }
}

// Takes part in the gathers of rank 0's forwards (FlatParameters::set_generating).
void RunSamples::follow(UnitParameters& units) {
  while (any_forward(false)) {
    units.acquire(0, UnitCall::kInference);
    units.release(0);
  }
}

// Whether rank 0 begins another forward. It also learns of stops.
bool RunSamples::any_forward(bool own) {
  constexpr uint8_t kForward = 1, kStop = 2;
  const auto flags = static_cast<uint8_t>((own ? kForward : 0) | (stop_requested_() ? kStop : 0));
  const auto of_ranks = gather_values<uint8_t>(world_, of_.device, flags);
  stops_ |= std::any_of(of_ranks.begin(), of_ranks.end(), [](uint8_t rank) { return (rank & kStop) != 0; });
  return (of_ranks.front() & kForward) != 0;
}

WrittenSamples RunSamples::generate(int64_t num_tokens) {
  inference::GenerateOptions options{.prompts = prompts_, .num_tokens = num_tokens};
  options.sampling = {.temperature = samples_.temperature, .top_k = samples_.top_k, .top_p = samples_.top_p};
  options.seed = samples_.seed;
  options.stops = samples_.stop;
  options.model.uses_cache = !of_.engine.gathers_units();
  options.model.logs_notes = !has_worked_;
  options.stop_requested = [this] { return stops_ |= stop_requested_(); };
  WrittenSamples out;
  out.texts.resize(prompts_.size());
  inference::generate_texts(*model_, of_.device, options,
                            {.on_finished = [&](size_t i, const inference::WrittenText& text) {
                              out.texts[i] = sample_of(prompts_[i], text);
                            }});
  if (stops_) return {};
  const bool has_references =
      std::any_of(prompts_.begin(), prompts_.end(), [](const auto& prompt) { return prompt.reference.has_value(); });
  if (has_references) out.values.emplace_back(config::kExactMatch, exact_match(out.texts));
  if (!samples_.metric_command.empty()) measure(out);
  return out;
}

void RunSamples::measure(WrittenSamples& written) const {
  try {
    for (auto& value : run_metric_command(samples_.metric_command, written.texts)) {
      add_value(written.values, std::move(value));
    }
  } catch (const UserError& error) {
    if (!has_worked_) throw;
    log::warning("samples of this evaluation are not measured: {}", error.what());
  }
}

}  // namespace dslaunch::runtime::engine::run
