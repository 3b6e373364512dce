// Weight gradients that are written into flat buffers, and copied there, at every stage: the same bits.
#include "support/written_gradients.hpp"

#include <catch2/catch.hpp>

using namespace dslaunch;
using test::WrittenGradientsCase;

TEST_CASE("a weight's gradient is written into its buffer with the bits of a copy", "[runtime][engine][written]") {
  const int stage = GENERATE(0, 1, 2, 3);
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const auto accumulation_dtype = GENERATE(at::kFloat, at::kBFloat16);
  const int64_t micro_batches = GENERATE(1, 3);
  WrittenGradientsCase c{
      .stage = stage, .dtype = dtype, .micro_batches = micro_batches, .accumulation_dtype = accumulation_dtype};
  INFO("stage " << stage << ", " << at::toString(dtype) << " accumulated in " << at::toString(accumulation_dtype)
                << ", micro batches " << micro_batches);
  const auto written = test::step_gradients(c);
  c.writes = false;
  const auto copied = test::step_gradients(c);
  const auto exact = test::exact_gradients(c);
  const double bound = dtype == at::kFloat && accumulation_dtype == at::kFloat ? 1e-6 : 3e-2;
  for (size_t i = 0; i < exact.of_parameters.size(); ++i) {
    CHECK(at::equal(written.of_parameters[i], copied.of_parameters[i]));
    const auto difference = (written.of_parameters[i] - exact.of_parameters[i]).norm() / exact.of_parameters[i].norm();
    CHECK(difference.item<double>() < bound);
  }
  const int64_t weights = 2 * test::kBlockIn * test::kBlockHidden, others = test::kBlockIn + test::kBlockHidden;
  CHECK(copied.num_copied == micro_batches * (weights + others));
  // On the CPU those of the first micro batch, where all sums have their type.
  CHECK(written.num_copied == copied.num_copied - (accumulation_dtype == dtype ? weights : 0));
}
