#include "config/batch_triple.hpp"

#include "base/format.hpp"

namespace dslaunch::config {
namespace {

constexpr int64_t kAutoMicroBatch = 8;

std::string ranks(const BatchRequest& request) {
  return fmt::format("{} {}rank{}", request.data_ranks, request.ranks_per_model > 1 ? "data " : "",
                     request.data_ranks == 1 ? "" : "s");
}

// False when the product overflows 64 bits.
bool multiply(int64_t a, int64_t b, int64_t& out) {
  return !__builtin_mul_overflow(a, b, &out);
}

// "8 or 16": the multiples of `unit` next to `wanted`.
std::string next_multiples(int64_t wanted, int64_t unit) {
  int64_t below = wanted / unit * unit;
  int64_t above = 0;
  if (__builtin_add_overflow(below, unit, &above)) return fmt::format("{}", below);
  return below == 0 ? fmt::format("{}", above) : fmt::format("{} or {}", below, above);
}

Result<BatchSolution> solved(const BatchRequest& request, int64_t micro, int64_t accumulation, std::string_view how) {
  int64_t samples = 0;
  if (!multiply(micro, accumulation, samples) || !multiply(samples, request.data_ranks, samples)) {
    return Failure{fmt::format("micro batch {} × accumulation {} × {} does not fit into 64 bits", micro, accumulation,
                               ranks(request))};
  }
  return BatchSolution{{samples, micro, accumulation},
                       fmt::format("train_batch_size {} = micro batch {} × accumulation {} × {} ({})", samples, micro,
                                   accumulation, ranks(request), how)};
}

Result<BatchSolution> check_all_three(const BatchRequest& request) {
  Result<BatchSolution> out = solved(request, *request.micro_batch, *request.accumulation, "all three given");
  if (!out.ok() || out->batch.train_batch == *request.train_batch) return out;
  return Failure{
      fmt::format("train_batch_size {} does not equal train_micro_batch_size_per_gpu {} × gradient_accumulation_steps "
                  "{} × {} = {}; set train_batch_size to {}, or leave one of the three keys out",
                  *request.train_batch, *request.micro_batch, *request.accumulation, ranks(request),
                  out->batch.train_batch, out->batch.train_batch)};
}

// The batch and one of its two factors are given: computes the other factor.
Result<BatchSolution> divide(const BatchRequest& request, int64_t factor, std::string_view given,
                             std::string_view wanted) {
  int64_t unit = 0;
  int64_t batch = *request.train_batch;
  if (!multiply(factor, request.data_ranks, unit) || batch % unit != 0) {
    std::string product = unit > 0 ? fmt::format(" = {}", unit) : "";
    std::string proposal = unit > 0 ? fmt::format("set train_batch_size to {}", next_multiples(batch, unit))
                                    : fmt::format("make {} smaller", given);
    return Failure{
        fmt::format("train_batch_size {} cannot be split: {} {} × {}{} does not divide it, so {} cannot be "
                    "an integer; {}",
                    batch, given, factor, ranks(request), product, wanted, proposal)};
  }
  int64_t other = batch / unit;
  bool micro_given = request.micro_batch.has_value();
  return solved(request, micro_given ? factor : other, micro_given ? other : factor,
                micro_given ? "accumulation solved" : "micro batch solved");
}

Result<BatchSolution> split_over_ranks(const BatchRequest& request) {
  int64_t batch = *request.train_batch;
  if (batch % request.data_ranks == 0) return solved(request, batch / request.data_ranks, 1, "micro batch solved");
  std::string reason = batch < request.data_ranks ? "leaves ranks without a sample" : "does not split evenly";
  return Failure{
      fmt::format("train_batch_size {} over {} {}: micro batch {} × accumulation 1 × {} = {}; set "
                  "train_batch_size to {}",
                  batch, ranks(request), reason, batch / request.data_ranks, ranks(request),
                  batch / request.data_ranks * request.data_ranks, next_multiples(batch, request.data_ranks))};
}

}  // namespace

Result<BatchSolution> solve_batch(const BatchRequest& request) {
  constexpr std::string_view kMicro = "train_micro_batch_size_per_gpu", kAccumulation = "gradient_accumulation_steps";
  if (request.train_batch) {
    if (request.micro_batch && request.accumulation) return check_all_three(request);
    if (request.micro_batch) return divide(request, *request.micro_batch, kMicro, kAccumulation);
    if (request.accumulation) return divide(request, *request.accumulation, kAccumulation, kMicro);
    return split_over_ranks(request);
  }
  if (request.micro_batch)
    return solved(request, *request.micro_batch, request.accumulation.value_or(1), "batch solved");
  if (request.auto_batch) return solved(request, kAutoMicroBatch, request.accumulation.value_or(1), "from \"auto\"");
  return solved(request, 1, request.accumulation.value_or(1), "no batch size given");
}

}  // namespace dslaunch::config
