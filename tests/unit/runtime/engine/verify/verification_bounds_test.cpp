// How far a run may be from its replica: by hand, from the numbers of the formats.
#include "runtime/engine/verify/verification_bounds.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/engine/verify/replica.hpp"
#include "runtime/model/torchscript/load_script_model.hpp"
#include "support/expect_error.hpp"
#include "support/mixed_net.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::verify;

namespace {

struct Net {
  test::TempDir folder;
  std::unique_ptr<model::Model> model;
  Net() {
    test::make_mixed_net().save(folder / "net.pt");
    model = model::torchscript::load_script_model(folder / "net.pt", {});
  }
};

engine::step::EngineOptions in(at::ScalarType dtype) {
  engine::step::EngineOptions options;
  options.dtypes = precision::ModelDtypes({dtype, /*keep_model_dtypes=*/false, true}, {});
  return options;
}

}  // namespace

TEST_CASE("bounds follow the types in which gradients are computed and sent", "[runtime][engine][verification]") {
  const Net net;
  config::JobConfig config;
  config.batch.accumulation = 2;
  const auto fp32 = bounds_of(*net.model, config, {}, 3);
  CHECK(fp32.gradient.relative == 1e-5);
  CHECK(fp32.gradient.of_parts == Approx(std::ldexp(5 + 8, -24)));  // 3 ranks + 2, 2 steps + 2 * 3
  CHECK(fp32.gradient.absolute == 0);
  CHECK(fp32.rounding == 1e-6);
  CHECK_FALSE(fp32.is_spread);
  CHECK_FALSE(fp32.gradient.splits_sums);
  config.tensor_parallel.size = 2;
  CHECK(bounds_of(*net.model, config, {}, 3).gradient.splits_sums);
  CHECK(bounds_of(*net.model, config, {}, 3).gradient.relative == 1e-5);
  test::expect_error(ExitCode::kBadInput, {"2 tensor ranks in 16 bits", "verify in fp32"},
                     [&] { bounds_of(*net.model, config, in(at::kBFloat16), 3); });
  config.tensor_parallel.size = 1;
  const auto bf16 = bounds_of(*net.model, config, in(at::kBFloat16), 3);
  CHECK(bf16.gradient.relative == std::ldexp(1, -8));
  CHECK(bf16.gradient.of_parts == Approx(std::ldexp(5, -8) + std::ldexp(8, -24)));
  const auto fp16 = bounds_of(*net.model, config, in(at::kHalf), 3);
  CHECK(fp16.gradient.relative == std::ldexp(1, -11));
  CHECK(fp16.gradient.absolute == std::ldexp(3 * 3 * 2, -25));
  config.fp32_master = false;
  CHECK(bounds_of(*net.model, config, in(at::kHalf), 3).rounding == std::ldexp(1, -11));
  config.communication_data_type = config::ScalarType::kFp32;
  CHECK(bounds_of(*net.model, config, in(at::kHalf), 3).gradient.absolute == 0);
  config.autocast = config::ScalarType::kBf16;
  CHECK(bounds_of(*net.model, config, {}, 1).gradient.relative == std::ldexp(1, -8));
  config.optimizer.type = config::OptimizerType::kMuon;
  CHECK(bounds_of(*net.model, config, {}, 1).is_spread);
  config.zero.quantized_gradients = true;
  test::expect_error(ExitCode::kBadInput, {"differs from an unsharded replica by design"},
                     [&] { bounds_of(*net.model, config, {}, 1); });
}

TEST_CASE("a replica's memory by hand", "[runtime][engine][verification]") {
  const Net net;
  const int64_t trainable = 25 + 2 * 30 + 15, frozen = 25;
  // fp32, two moments: master, gradient, parts and moments; both bounds; what is broadcast.
  CHECK(replica_bytes(net.model->facts.table, {}, 2) == trainable * (4 * 5 + 2 * 4 * 3 + 4 * 3) + frozen * 4);
  // 16 bits: also the parameters themselves and a copy.
  CHECK(replica_bytes(net.model->facts.table, in(at::kBFloat16).dtypes, 2) ==
        trainable * (4 * 5 + 2 * 4 * 3 + 4 * 3 + 6) + frozen * 4);
}
