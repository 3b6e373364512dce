#include "bench_options.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/format.hpp"
#include "command_line.hpp"
#include "config/load.hpp"
#include "run_flags.hpp"

namespace dslaunch::launcher {
namespace {

constexpr int kMaxSeconds = 3600;
constexpr int64_t kMinParameters = 1'000'000;  // fewer fit into the caches of some processors

constexpr const char* kUsage =
    "usage: dslaunch bench io [--dir DIR] [options]\n"
    "       dslaunch bench adam [options]\n"
    "       dslaunch bench step MODEL.pt [--config FILE] [options]";
constexpr const char* kHelp =
    "  dslaunch bench io --dir /local_nvme\n"
    "  dslaunch bench io --dir /local_nvme --seconds 60 --json\n"
    "How fast files in DIR are read and written at several block sizes, queue depths and threads: past the page\n"
    "cache, as what a run keeps in files (device nvme). At the end the best setting as the block 'aio' of a config,\n"
    "beside fio's rates for it, where fio is installed, and the rate at which these cores copy memory. The file has "
    "no\n"
    "name, and its space is free again when the command ends, however it ends.\n"
    "  dslaunch bench adam\n"
    "  dslaunch bench adam --params 1e8 --json\n"
    "How fast the CPU updates optimizer state that is offloaded, by number of threads and by optimizer, beside moving\n"
    "the same bytes without computing anything; what binds it, and how many threads are enough.\n"
    "  dslaunch bench step model.pt --config ds.json\n"
    "  dslaunch bench step model.pt --config ds.json --against torch\n"
    "Training steps of a model with a config, on one GPU or CPU rank: milliseconds, tokens and FLOPs a second, the\n"
    "share of what large matrix products reach, memory, which kernels take the time, what was fused and what not, and\n"
    "why; --against torch: beside the same file in eager TorchScript. Nothing is saved.\n";

BenchSubject subject_of(const std::string& name) {
  if (name.empty()) {
    usage_error(
        "bench what? dslaunch bench io [--dir DIR]: reads and writes of files; dslaunch bench adam: updates on "
        "the CPU; dslaunch bench step MODEL.pt: training steps of a model");
  }
  if (name == "comm") usage_error("bench comm is not supported yet");
  if (name == "io") return BenchSubject::kIo;
  if (name == "adam") return BenchSubject::kAdam;
  if (name == "step") return BenchSubject::kStep;
  usage_error(fmt::format("bench {}: expected io, adam or step", name));
}

int64_t parameters_of(double given) {
  constexpr double kMost = 1e12;
  if (!(given >= static_cast<double>(kMinParameters)) || given > kMost) {
    usage_error(fmt::format("--params {}: expected 1e6 to 1e12", given));
  }
  return static_cast<int64_t>(given);
}

// The subjects of the command, and the options that each takes.
enum Subject : unsigned { kOfIo = 1, kOfAdam = 2, kOfStep = 4 };
constexpr std::pair<Subject, const char*> kSubjects[] = {{kOfIo, "io"}, {kOfAdam, "adam"}, {kOfStep, "step"}};
constexpr std::pair<const char*, unsigned> kOptions[] = {
    {"--dir", kOfIo},       {"--params", kOfAdam}, {"--seconds", kOfIo | kOfAdam}, {"--config", kOfStep},
    {"--set", kOfStep},     {"--device", kOfStep}, {"--steps", kOfStep},           {"--warmup", kOfStep},
    {"--against", kOfStep}, {"--data", kOfStep},   {"--inputs", kOfStep},          {"--labels", kOfStep},
    {"--loss", kOfStep}};

Subject options_of(BenchSubject subject) {
  switch (subject) {
    case BenchSubject::kIo:
      return kOfIo;
    case BenchSubject::kAdam:
      return kOfAdam;
    case BenchSubject::kStep:
      break;
  }
  return kOfStep;
}

void require_own_options(CommandLine& line, Subject own) {
  const auto name_of = [](unsigned subjects) {
    return std::find_if(std::begin(kSubjects), std::end(kSubjects),
                        [&](const auto& each) { return (each.first & subjects) != 0; })
        ->second;
  };
  for (const auto& [option, takers] : kOptions) {
    if (line.app().count(option) == 0 || (takers & own) != 0) continue;
    usage_error(
        fmt::format("{} belongs to 'dslaunch bench {}', not to 'bench {}'", option, name_of(takers), name_of(own)));
  }
}

// Of bench step, as they were given.
struct StepOptions {
  std::string config, device, against;
  std::vector<std::string> sets;
  config::RunFlags flags;
  std::optional<int64_t> steps, warmup;
};

void add_step_options(CommandLine& line, StepOptions& step) {
  line.value("--config", step.config, "step: JSON (DeepSpeed's keys and comments) or YAML; without it the defaults",
             "FILE");
  line.value("--set", step.sets, "step: overrides the config; repeatable", "KEY=VALUE")->allow_extra_args(false);
  line.value("--device", step.device, "step: auto: a GPU if there is one, else the CPU", "auto|cpu|cuda");
  line.value_from(1, "--steps", step.steps, "step: how many are timed (20; on CPUs 5)", "N");
  line.value_from(2, "--warmup", step.warmup, "step: how many run before them (10; on CPUs 2)", "N");
  line.value("--against", step.against, "step: measures the same file in eager TorchScript as well", "torch");
  add_run_flags(line, config::FlagGroup::kData, step.flags);
}

// For dsworker, which runs models.
std::vector<std::string> worker_words(const std::string& model, const StepOptions& step, bool json) {
  if (!step.device.empty() && step.device != "auto" && step.device != "cpu" && step.device != "cuda") {
    usage_error(fmt::format("--device {}: expected auto, cpu or cuda", step.device));
  }
  if (!step.against.empty() && step.against != "torch") {
    usage_error(fmt::format("--against {}: expected torch", step.against));
  }
  for (const auto& text : step.sets) config::parse_set_option(text);
  check_run_flags(step.flags);
  std::vector<std::string> words{"bench", model};
  const auto pass = [&](const char* name, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {name, value});
  };
  pass("--config", step.config);
  for (const auto& text : step.sets) pass("--set", text);
  for (const auto& word : config::words_of(step.flags)) words.push_back(word);
  pass("--device", step.device);
  if (step.steps) pass("--steps", std::to_string(*step.steps));
  if (step.warmup) pass("--warmup", std::to_string(*step.warmup));
  pass("--against", step.against);
  if (json) words.emplace_back("--json");
  return words;
}

}  // namespace

std::optional<BenchOptions> read_bench_options(const Arguments& arguments) {
  BenchOptions options;
  StepOptions step;
  std::string subject;
  auto num_parameters = static_cast<double>(options.num_parameters);
  CommandLine line("dslaunch bench", kUsage, kHelp);
  line.app().add_option("SUBJECT", subject, "io, adam or step")->type_name("io|adam|step");
  line.app().add_option("MODEL", options.model, "step: a model file written by torch.jit.save");
  line.value("--dir", options.directory, "io: the directory whose storage is measured (.)", "DIR");
  line.value("--params", num_parameters, "adam: parameters to update, 28 bytes of memory each (33554432)", "N");
  line.value("--seconds", options.seconds, "io, adam: how long the measurements take, about (20)", "N");
  add_step_options(line, step);
  line.flag("--json", options.json, "one JSON document on standard output");
  if (!line.parse(arguments)) return std::nullopt;
  if (arguments.has_separator) usage_error("'--' belongs to 'dslaunch exec', not to 'bench'");
  options.subject = subject_of(subject);
  require_own_options(line, options_of(options.subject));
  if (options.subject == BenchSubject::kStep) {
    if (options.model.empty()) usage_error("bench step which model? dslaunch bench step MODEL.pt [--config FILE]");
    options.worker_words = worker_words(options.model, step, options.json);
    return options;
  }
  if (!options.model.empty()) {
    usage_error(fmt::format("unexpected argument '{}'; see 'dslaunch bench --help'", options.model));
  }
  options.num_parameters = parameters_of(num_parameters);
  if (options.seconds < 1 || options.seconds > kMaxSeconds) {
    usage_error(fmt::format("--seconds {}: expected 1 to {}", options.seconds, kMaxSeconds));
  }
  return options;
}

}  // namespace dslaunch::launcher
