// Casts to fp8 and their GEMMs on a GPU against those of the CPU, which the unit tests hold to their definition; and
// linear layers in fp8. Without a CUDA device they are skipped.
#include "runtime/device/fp8.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>

#include "runtime/device/device.hpp"
#include "runtime/device/fp8_maxima.hpp"
#include "runtime/device/gemm.hpp"
#include "runtime/model/fusion/executor.hpp"
#include "runtime/model/layers/fp8_linear.hpp"
#include "support/cuda_device.hpp"
#include "unit/runtime/model/random_regions.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::device;
using config::Fp8Recipe;

namespace {

at::Tensor random_matrix(int64_t rows, int64_t columns) {
  return (at::randn({rows, columns}) * at::randn({rows, 1}).exp()).to(at::kBFloat16);
}

// The values without the zeros behind them.
void check_same(const Fp8Matrix& there, const Fp8Matrix& here) {
  const int64_t columns = here.values.size(1);
  const at::Tensor values = there.values.cpu();
  CHECK(values.narrow(1, 0, columns).to(at::kFloat).equal(here.values.to(at::kFloat)));
  CHECK(values.narrow(1, columns, values.size(1) - columns).to(at::kFloat).eq(0).all().item<bool>());
  CHECK(there.inverse_scales.cpu().equal(here.inverse_scales));
}

// Within a few roundings to bf16 of the largest: sums of fp8 are exact to about 14 bits on a GPU.
bool is_near(const at::Tensor& there, const at::Tensor& here) {
  const at::Tensor got = there.detach().cpu().to(at::kDouble), expected = here.detach().to(at::kDouble);
  return ((got - expected).abs() <= expected.abs().max() / 128).all().item<bool>();
}

bool has_fp8() {
  if (!test::has_device()) return false;
  try {
    require_fp8(at::Device(at::kCUDA, 0));
    return true;
  } catch (const UserError& error) {
    WARN("not run: " << error.what());
    return false;
  }
}

}  // namespace

TEST_CASE("a GPU casts to fp8 as the CPU does, bit by bit", "[gpu][fp8]") {
  if (!test::has_device()) return;
  at::manual_seed(21);
  const int64_t rows = GENERATE(1, 24, 300);
  const auto plain = GENERATE(Fp8Scale::kOfTensor, Fp8Scale::kOfRow),
             transposed = GENERATE(Fp8Scale::kOfTensor, Fp8Scale::kOfRow);
  const bool is_e5m2 = GENERATE(false, true), power_of_two = GENERATE(false, true), is_view = GENERATE(false, true);
  const Fp8Cast cast{is_e5m2 ? at::kFloat8_e5m2 : at::kFloat8_e4m3fn, plain, transposed, power_of_two};
  const at::Tensor here = is_view ? random_matrix(288, rows * 16).t() : random_matrix(rows, 288);
  const at::Tensor stored = is_view ? here.t().contiguous().to(at::kCUDA).t() : here.to(at::kCUDA);
  const auto on_gpu = to_fp8(stored, cast), on_cpu = to_fp8(here, cast);
  check_same(on_gpu.plain, on_cpu.plain);
  check_same(on_gpu.transposed, on_cpu.transposed);
}

TEST_CASE("linear layers in fp8 on a GPU have the outputs and gradients of a CPU", "[gpu][fp8]") {
  if (!has_fp8()) return;
  at::manual_seed(22);
  const auto recipe = GENERATE(Fp8Recipe::kTensorwise, Fp8Recipe::kRowwise, Fp8Recipe::kRowwiseWithGwHp);
  const int64_t rows = GENERATE(40, 512);
  const bool has_bias = GENERATE(false, true);
  const dslaunch::runtime::model::layers::GemmOptions options{
      .sums_bias = false, .writes_gradient = false, .fp8 = recipe};
  const at::Tensor x = random_matrix(rows, 256).requires_grad_(), weight = random_matrix(384, 256).requires_grad_();
  const at::Tensor bias = random_matrix(1, 384)[0], g = random_matrix(rows, 384);
  const auto step = [&](const at::Device device) {
    const at::Tensor x_there = x.detach().to(device).requires_grad_(), w = weight.detach().to(device).requires_grad_();
    const auto given = has_bias ? std::optional(bias.to(device)) : std::nullopt;
    std::vector<at::Tensor> out{dslaunch::runtime::model::layers::fused_linear(x_there, w, given, options)};
    for (auto& gradient : torch::autograd::grad({out[0]}, {x_there, w}, {g.to(device)})) out.push_back(gradient);
    return out;
  };
  const auto here = step(at::kCPU), there = step(at::Device(at::kCUDA, 0));
  for (size_t i = 0; i < here.size(); ++i) {
    INFO("recipe " << static_cast<int>(recipe) << ", " << rows << " rows, result " << i);
    CHECK(is_near(there[i], here[i]));
  }
}

TEST_CASE("layers in fp8 that read one input compute on a GPU what each of them computes alone", "[gpu][fp8]") {
  if (!has_fp8()) return;
  namespace layers = dslaunch::runtime::model::layers;
  at::manual_seed(24);
  const bool keeps_weights = GENERATE(true, false);
  // Large enough for measured algorithms, but for one.
  const auto there = [](const at::Tensor& tensor) { return tensor.to(at::kCUDA).requires_grad_(); };
  const at::Tensor x = there(random_matrix(2048, 2048)), wide = there(random_matrix(2048, 2048)),
                   narrow = there(random_matrix(256, 2048));
  const std::vector<at::Tensor> upstream{random_matrix(2048, 2048).to(at::kCUDA),
                                         random_matrix(2048, 256).to(at::kCUDA)};
  const layers::GemmOptions options{.writes_gradient = false,
                                    .gemms = c10::make_intrusive<GemmCache>(std::string()),
                                    .fp8 = Fp8Recipe::kTensorwise,
                                    .keeps_fp8_weights = keeps_weights};
  const std::vector<at::Tensor> alone{layers::fused_linear(x, wide, std::nullopt, options),
                                      layers::fused_linear(x, narrow, std::nullopt, options)};
  const auto layout = dslaunch::runtime::model::units::WeightLayout::kOutIn;
  const auto joined =
      layers::fp8_linears(x, {{layers::weight_of(wide, layout)}, {layers::weight_of(narrow, layout)}}, options);
  const auto expected = torch::autograd::grad(alone, {x, wide, narrow}, upstream),
             got = torch::autograd::grad(joined, {x, wide, narrow}, upstream);
  for (size_t i = 0; i < joined.size(); ++i) CHECK(is_near(joined[i], alone[i].cpu()));
  for (size_t i = 0; i < got.size(); ++i) CHECK(is_near(got[i], expected[i].cpu()));
  CHECK(options.gemms->counts().measured > 0);
  // With PyTorch's algorithms, and each cast by itself.
  auto plain = options;
  plain.gemms = {};
  const at::Tensor out = layers::fused_linear(x, wide, std::nullopt, plain);
  CHECK(is_near(out, alone[0].cpu()));
}

TEST_CASE("a GEMM in fp8 on a GPU is written into a sum or added to it", "[gpu][fp8]") {
  if (!has_fp8()) return;
  at::manual_seed(23);
  const auto scale = GENERATE(Fp8Scale::kOfTensor, Fp8Scale::kOfRow);
  const auto type = GENERATE(at::kBFloat16, at::kFloat);
  const bool adds = GENERATE(false, true);
  const at::Tensor a = random_matrix(64, 128), b = random_matrix(32, 128);
  const auto sum_on = [&](const at::Device device) {
    const auto left = to_fp8(a.to(device), {.plain = scale}).plain,
               right = to_fp8(b.to(device), {.plain = scale}).plain;
    at::Tensor sum = at::ones({64, 32}, at::TensorOptions(device).dtype(type));
    multiply({left, right}, sum, adds);
    return sum;
  };
  CHECK(is_near(sum_on(at::Device(at::kCUDA, 0)), sum_on(at::kCPU)));
}

TEST_CASE("generated kernels note the largest magnitude of what they write in bf16", "[gpu][fp8]") {
  if (!has_fp8()) return;
  namespace fusion = dslaunch::runtime::model::fusion;
  const auto services = c10::make_intrusive<fusion::FusionServices>();
  services->kernels = Device(at::kCUDA).kernels();
  services->notes_maxima = true;
  const std::vector<std::vector<int64_t>> rows{{1}, {37}, {3, 5}, {300}};
  const std::vector<int64_t> widths{64, 7, 2048, 264, 5000};
  int num_noted = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    at::manual_seed(seed);
    const auto& leading = rows[seed % rows.size()];
    const auto made = test::random_region(seed, leading, widths[seed % widths.size()], at::kBFloat16);
    std::vector<at::Tensor> inputs, outputs;
    for (const auto& input : test::tensors_for(made.region, leading)) inputs.push_back(input.to(at::kCUDA));
    for (const auto& output : made.region.outputs) {
      auto sizes = output.rows == fusion::Rows::kSum ? std::vector<int64_t>() : leading;
      sizes.push_back(made.region.node(output.value).width);
      outputs.push_back(at::empty(sizes, at::TensorOptions().device(at::kCUDA).dtype(output.dtype)));
    }
    REQUIRE(fusion::FusionExecutor(made.region, services).run(leading, inputs, outputs));
    for (size_t i = 0; i < outputs.size(); ++i) {
      INFO("seed " << seed << ", output " << i);
      const bool is_noted = fusion::has_maximum(made.region, made.region.outputs[i]);
      const at::Tensor slots = noted_maximum(outputs[i]);
      REQUIRE(slots.defined() == is_noted);
      if (!is_noted) continue;
      num_noted += 1;
      CHECK(slots.max().item<int>() == outputs[i].abs().view(at::kShort).max().item<int>());
      if (outputs[i].size(-1) % 16 != 0) continue;
      const at::Tensor matrix = outputs[i].view({-1, outputs[i].size(-1)});
      const Fp8Cast cast{.plain = Fp8Scale::kOfTensor, .transposed = Fp8Scale::kOfTensor};
      const auto with_note = to_fp8(matrix, cast), without = to_fp8(matrix.clone(), cast);
      CHECK(with_note.plain.inverse_scales.equal(without.plain.inverse_scales));
      CHECK(with_note.transposed.values.view(at::kByte).equal(without.transposed.values.view(at::kByte)));
    }
  }
  CHECK(num_noted >= 20);
}
