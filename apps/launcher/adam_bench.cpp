#include "adam_bench.hpp"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/format.hpp"
#include "base/quantity.hpp"

namespace dslaunch::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;
using Seconds = std::chrono::duration<double>;
using runtime::ThreadTeam;
using runtime::optim::host::ElementType;
using runtime::optim::host::InstructionSet;
using runtime::optim::host::RoundOptimizer;
using runtime::optim::host::RoundWork;
using runtime::optim::host::UpdateRounds;

constexpr auto kGradient = ElementType::kBFloat16;
constexpr double kNear = 0.9, kSame = 0.97;
constexpr RoundOptimizer kOptimizers[] = {RoundOptimizer::kAdam, RoundOptimizer::kAdagrad, RoundOptimizer::kLion,
                                          RoundOptimizer::kSgdMomentum};

const char* name_of(RoundOptimizer optimizer) {
  switch (optimizer) {
    case RoundOptimizer::kAdam:
      return "AdamW";
    case RoundOptimizer::kAdagrad:
      return "Adagrad";
    case RoundOptimizer::kLion:
      return "Lion";
    default:
      return "SGD, momentum";
  }
}

const char* name_of(InstructionSet set) {
  switch (set) {
    case InstructionSet::kAvx512:
      return "AVX-512";
    case InstructionSet::kAvx2:
      return "AVX2";
    default:
      return "SSE2";
  }
}

double best_stream(const AdamBenchReport& report) {
  double best = 0;
  for (const auto& rate : report.by_threads) best = std::max(best, rate.stream);
  return best;
}

// Of an update of so many parameters.
double seconds_for(double num_parameters, const UpdateRate& rate) {
  return num_parameters * static_cast<double>(rate.bytes) / rate.update;
}

const UpdateRate& fastest(const AdamBenchReport& report) {
  return *std::max_element(report.by_threads.begin(), report.by_threads.end(),
                           [](const auto& a, const auto& b) { return a.update < b.update; });
}

// One after the other, since what else uses the machine changes from second to second; the fastest round counts.
UpdateRate measure(UpdateRounds& rounds, int num_threads, RoundOptimizer optimizer, Seconds duration) {
  ThreadTeam team(num_threads);
  UpdateRate out{optimizer, num_threads, bytes_of_update(optimizer, kGradient), 0, 0};
  const double bytes = static_cast<double>(rounds.count() * out.bytes);
  const auto began = Clock::now();
  for (int round = 0; round < 2 || Clock::now() - began < duration; ++round) {
    for (const auto work : {RoundWork::kUpdate, RoundWork::kStream, RoundWork::kCopy}) {
      const auto begin = Clock::now();
      rounds.run(team, work, optimizer, kGradient);
      double& rate = work == RoundWork::kUpdate ? out.update : out.stream;
      rate = std::max(rate, bytes / Seconds(Clock::now() - begin).count());
    }
  }
  return out;
}

Json json_of(const UpdateRate& rate, const AdamBenchReport& report) {
  return {{"optimizer", name_of(rate.optimizer)},   {"num_threads", rate.num_threads},
          {"bytes_per_parameter", rate.bytes},      {"update_bytes_per_second", rate.update},
          {"stream_bytes_per_second", rate.stream}, {"bound_by", binding(rate, report)}};
}

std::string document(const AdamBenchReport& report) {
  const auto rows = [&](const std::vector<UpdateRate>& rates) {
    Json out = Json::array();
    for (const auto& rate : rates) out.push_back(json_of(rate, report));
    return out;
  };
  const Json json{{"num_parameters", report.num_parameters},
                  {"gradient", "bf16"},
                  {"instruction_set", report.instruction_set},
                  {"num_cores", report.num_cores},
                  {"by_threads", rows(report.by_threads)},
                  {"by_optimizer", rows(report.by_optimizer)},
                  {"enough_threads", enough_threads(report)},
                  {"seconds_per_billion_parameters", seconds_for(1e9, fastest(report))}};
  return dump_json(json, 2) + "\n";
}

std::string row(const UpdateRate& rate, const AdamBenchReport& report) {
  return fmt::format("{:<14} {:>7}  {:>5}  {:>14.1f}  {:>11.2f}  {:>11.2f}  {:>6.2f}  {}\n", name_of(rate.optimizer),
                     rate.num_threads, rate.bytes, 1000 * seconds_for(1e8, rate), rate.update / 1e9, rate.stream / 1e9,
                     rate.update / rate.stream, binding(rate, report));
}

}  // namespace

std::string binding(const UpdateRate& rate, const AdamBenchReport& report) {
  if (rate.update < kNear * rate.stream) return "arithmetic";
  const bool is_all = rate.num_threads == report.num_cores || rate.stream >= kNear * best_stream(report);
  return is_all ? "memory" : "memory of these cores";
}

int enough_threads(const AdamBenchReport& report) {
  const double best = fastest(report).update;
  return std::find_if(report.by_threads.begin(), report.by_threads.end(),
                      [&](const auto& rate) { return rate.update >= kSame * best; })
      ->num_threads;
}

std::string describe(const AdamBenchReport& report, bool json) {
  if (json) return document(report);
  std::string text =
      fmt::format("{} parameters in fp32 with their moments, bf16 gradients and parameters; {}, {} core{}\n",
                  with_separators(report.num_parameters), report.instruction_set, report.num_cores,
                  report.num_cores == 1 ? "" : "s");
  text += "\noptimizer      threads  bytes  ms per 1e8 par.  update GB/s  stream GB/s   ratio  bound by\n";
  for (const auto& rate : report.by_threads) text += row(rate, report);
  text += "\n";
  for (const auto& rate : report.by_optimizer) text += row(rate, report);
  const int enough = enough_threads(report);
  return text + fmt::format("\nAdamW updates 1e9 parameters in {:.2f} s; {} thread{} {} enough\n",
                            seconds_for(1e9, fastest(report)), enough, enough == 1 ? "" : "s",
                            enough == 1 ? "is" : "are");
}

std::vector<int> thread_counts(int num_cores) {
  std::vector<int> out;
  for (int count = 1; count < num_cores; count *= 2) out.push_back(count);
  out.push_back(std::max(1, num_cores));
  return out;
}

AdamBenchReport measure_updates(int64_t num_parameters, int num_cores, int seconds) {
  AdamBenchReport out;
  out.num_cores = num_cores;
  out.instruction_set = name_of(runtime::optim::host::best_instruction_set());
  ThreadTeam all(num_cores);
  UpdateRounds rounds(num_parameters, all, /*huge_pages=*/true);
  out.num_parameters = rounds.count();
  const auto counts = thread_counts(num_cores);
  const Seconds each(static_cast<double>(seconds) / static_cast<double>(counts.size() + std::size(kOptimizers)));
  for (const int count : counts) out.by_threads.push_back(measure(rounds, count, RoundOptimizer::kAdam, each));
  for (const auto optimizer : kOptimizers) out.by_optimizer.push_back(measure(rounds, num_cores, optimizer, each));
  return out;
}

}  // namespace dslaunch::launcher
