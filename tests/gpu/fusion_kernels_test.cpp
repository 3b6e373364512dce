// Generated kernels against the reference on the CPU, and regions in models against PyTorch's own operators. Without a
// CUDA device they are skipped. `[.bench]` prints what kernels move in a second.
#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/script.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <iostream>
#include <string>
#include <vector>

#include "runtime/device/device.hpp"
#include "runtime/model/fusion/autodiff.hpp"
#include "runtime/model/fusion/autograd_function.hpp"
#include "runtime/model/fusion/executor.hpp"
#include "runtime/model/fusion/fusion_passes.hpp"
#include "runtime/model/fusion/segmenter.hpp"
#include "runtime/model/layers/linear.hpp"
#include "runtime/model/torchscript/plain_execution.hpp"
#include "support/cuda_device.hpp"
#include "unit/runtime/model/autograd_nodes.hpp"
#include "unit/runtime/model/random_regions.hpp"

namespace {

using namespace dslaunch::runtime::model::fusion;
using dslaunch::runtime::model::torchscript::PlainExecution;
using dslaunch::test::has_device;
using dslaunch::test::random_region;
using dslaunch::test::tensors_for;
using torch::jit::Module;
using Tensors = std::vector<at::Tensor>;
using Sizes = std::vector<int64_t>;

// Of all tests, with the user's compiled kernels.
const FusionServicesPtr& services() {
  static const auto services = [] {
    auto made = c10::make_intrusive<FusionServices>();
    made->kernels = dslaunch::runtime::device::Device(at::kCUDA).kernels();
    return made;
  }();
  return services;
}

void synchronize() {
  c10::impl::VirtualGuardImpl(at::kCUDA).synchronizeDevice(0);
}

double distance(const at::Tensor& a, const at::Tensor& exact) {
  const at::Tensor wide = exact.to(at::kCPU, at::kDouble);
  return ((a.to(at::kCPU, at::kDouble) - wide).norm() / (wide.norm() + 1e-30)).item<double>();
}

double tolerance(at::ScalarType dtype) {
  if (dtype == at::kFloat) return 2e-5;
  return dtype == at::kHalf ? 3e-3 : 2e-2;
}

// Filled, so that what a kernel leaves out is seen.
Tensors outputs_for(const Region& region, const Sizes& leading) {
  Tensors out;
  for (const auto& output : region.outputs) {
    Sizes sizes = output.rows == Rows::kSum ? Sizes() : leading;
    sizes.push_back(region.node(output.value).width);
    out.push_back(at::full(sizes, 77.0, at::TensorOptions().device(at::kCUDA).dtype(output.dtype)));
  }
  return out;
}

// The kernel's results beside the reference's on the CPU.
Tensors check_kernel(const Region& region, const Sizes& leading, const Tensors& inputs) {
  INFO(to_text(region));
  INFO("rows " << at::IntArrayRef(leading));
  FusionExecutor kernel(region, services());
  const Tensors outputs = outputs_for(region, leading);
  REQUIRE(kernel.run(leading, inputs, outputs));
  Tensors on_host;
  for (const auto& input : inputs) on_host.push_back(input.to(at::kCPU));
  const Tensors expected = run_reference(region, on_host, leading);
  for (size_t i = 0; i < outputs.size(); ++i) {
    INFO("output " << i);
    const bool is_rounded = region.outputs[i].dtype != at::kFloat;
    CHECK(distance(outputs[i], expected[i]) <= (is_rounded ? tolerance(region.outputs[i].dtype) : 2e-5));
  }
  return outputs;
}

Tensors on_gpu(const Tensors& tensors) {
  Tensors out;
  for (const auto& tensor : tensors) out.push_back(tensor.to(at::kCUDA));
  return out;
}

void check_both_ways(const Region& region, const Sizes& leading, const Tensors& inputs) {
  const Tensors outputs = check_kernel(region, leading, inputs);
  const auto backward = derive_backward(region, std::vector<bool>(region.inputs.size(), true),
                                        std::vector<bool>(region.outputs.size(), true));
  if (backward.region.outputs.empty()) return;
  const auto tensors_of = [&](const std::vector<BackwardSource>& sources) {
    Tensors out;
    for (const auto& source : sources) {
      using From = BackwardSource::From;
      out.push_back(source.from == From::kInput    ? inputs[source.index]
                    : source.from == From::kOutput ? outputs[source.index]
                                                   : at::randn_like(outputs[source.index]));
    }
    return out;
  };
  check_kernel(backward.region, leading, tensors_of(backward.sources));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto again = derive_recomputation(region, i, backward.sources, std::vector<bool>(inputs.size(), true));
    if (again) check_kernel(again->region, leading, tensors_of(again->sources));
  }
}

constexpr char kRmsNorm[] = R"(
def forward(self, x, y, weight):
    h = x + y
    wide = h.to(6)
    variance = wide.pow(2).mean([-1], True)
    return h, weight * (wide * torch.rsqrt(variance + 1e-5)).to(x.dtype)
)";
constexpr char kSwiGlu[] = "def forward(self, gate, up):\n    return torch.silu(gate) * up\n";
constexpr char kNewGelu[] = R"(
def forward(self, x):
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0))))
)";
constexpr char kLayerNorm[] = R"(
def forward(self, x, y, weight, bias):
    return torch.layer_norm(x + y, [weight.size(0)], weight, bias, 1e-5)
)";
constexpr char kRotary[] = R"(
def forward(self, x, cos, sin):
    q = x.transpose(1, 2)
    half = q.size(-1) // 2
    x1 = q[:, :, :, :half]
    x2 = q[:, :, :, half:]
    return q * cos + torch.cat([-x2, x1], -1) * sin
)";
constexpr char kSoftmax[] = "def forward(self, x):\n    return torch.softmax(x * 0.3, -1)\n";

struct Example {
  const char* name;
  const char* source;
  std::vector<Sizes> sizes;
};

std::vector<Example> examples(int64_t rows, int64_t width, int64_t head) {
  return {{"residual and RMSNorm", kRmsNorm, {{2, rows, width}, {2, rows, width}, {width}}},
          {"SwiGLU", kSwiGlu, {{2, rows, width}, {2, rows, width}}},
          {"GELU", kNewGelu, {{2, rows, width}}},
          {"residual and layer norm", kLayerNorm, {{2, rows, width}, {2, rows, width}, {width}, {width}}},
          {"rotary", kRotary, {{2, rows, 4, head}, {1, 1, rows, head}, {1, 1, rows, head}}},
          {"softmax", kSoftmax, {{2, rows, width}}}};
}

Module module_of(const std::string& source, bool is_fused) {
  Module model("Net");
  model.define(source);
  if (is_fused) fuse_regions(model, services());
  return model;
}

// Outputs and gradients; the gradients of the outputs are what `dtype` can hold.
Tensors results(Module& model, const Tensors& inputs, at::ScalarType dtype, int num_regions = 0) {
  const PlainExecution plain;
  const auto given = model.forward({inputs.begin(), inputs.end()});
  Tensors outputs;
  if (given.isTuple()) {
    for (const auto& one : given.toTupleRef().elements()) outputs.push_back(one.toTensor());
  } else {
    outputs.push_back(given.toTensor());
  }
  CHECK(dslaunch::test::count_regions(outputs) >= num_regions);
  at::manual_seed(8);
  Tensors upstream, out;
  for (const auto& output : outputs) {
    upstream.push_back(at::randn(output.sizes(), at::kFloat).to(dtype).to(output.device(), output.scalar_type()));
    out.push_back(output.detach());
  }
  for (const auto& gradient : torch::autograd::grad(outputs, inputs, upstream)) out.push_back(gradient);
  return out;
}

Tensors leaves(const Tensors& values, at::ScalarType dtype) {
  Tensors out;
  for (const auto& value : values) out.push_back(value.to(at::kCUDA, dtype).detach().requires_grad_());
  return out;
}

}  // namespace

TEST_CASE("region kernels: random regions compute what the reference computes") {
  if (!has_device()) return;
  const std::vector<Sizes> rows{{1}, {37}, {3, 5}, {2, 3, 4}, {300}};
  const Sizes widths{64, 7, 96, 2048, 30, 5000, 8, 264};
  for (uint32_t seed = 0; seed < 40; ++seed) {
    at::manual_seed(seed);
    const auto& leading = rows[seed % rows.size()];
    const auto dtype = std::array{at::kFloat, at::kBFloat16, at::kHalf}[seed % 3];
    const auto made = random_region(seed, leading, widths[seed % widths.size()], dtype);
    INFO("seed " << seed);
    check_both_ways(made.region, leading, on_gpu(tensors_for(made.region, leading)));
  }
}

TEST_CASE("region kernels: long rows, and many rows to sum") {
  if (!has_device()) return;
  at::manual_seed(1);
  for (const auto& [leading, width] : std::vector<std::pair<Sizes, int64_t>>{
           {{3}, 40000}, {{20000}, 64}, {{9001}, 33}, {{64, 33}, 2048}, {{3001}, 768}, {{1500}, 1100}}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const auto made = random_region(5, leading, width, dtype);
      check_both_ways(made.region, leading, on_gpu(tensors_for(made.region, leading)));
    }
  }
}

TEST_CASE("region kernels: tensors may lie in memory in any way") {
  if (!has_device()) return;
  at::manual_seed(2);
  Region region{.num_leading_dims = 3};
  Builder build(region);
  const std::vector<bool> all{true, true, true};
  const Id x = build.input({at::kBFloat16, 16, all}), y = build.input({at::kBFloat16, 16, all});
  region.outputs.push_back({build.binary(Op::kAdd, x, build.binary(Op::kMultiply, y, y)), at::kBFloat16});
  const Id mean = build.row_mean(x);
  region.outputs.push_back({build.binary(Op::kSubtract, y, mean), at::kFloat});
  const Sizes leading{2, 3, 5};
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor dense = at::randn({2, 3, 5, 16}, options);
  const std::vector<at::Tensor> others{
      at::randn({2, 5, 3, 16}, options).transpose(1, 2),                               // permuted
      at::randn({2, 3, 16, 5}, options).transpose(2, 3),                               // columns apart
      at::randn({2, 1, 5, 16}, options).expand({2, 3, 5, 16}),                         // shared
      at::randn({1}, options).expand({2, 3, 5, 16}),                                   // one value
      at::randn({2, 3, 5, 33}, options).narrow(-1, 1, 16),                             // rows that begin anywhere
      at::randn({2 * 3 * 5 * 16 + 1}, options).narrow(0, 1, 480).view({2, 3, 5, 16}),  // off by one element
      at::randn({5, 3, 2, 16}, options).permute({2, 1, 0, 3})};
  for (const auto& other : others) {
    check_kernel(region, leading, {dense, other});
    check_kernel(region, leading, {other, dense});
    check_kernel(region, leading, {other, other});
  }
}

TEST_CASE("region kernels: the same bits each time") {
  if (!has_device()) return;
  const auto made = random_region(11, {4000}, 256, at::kFloat, 3);
  const auto inputs = on_gpu(tensors_for(made.region, made.leading));
  const auto backward = derive_backward(made.region, std::vector<bool>(inputs.size(), true),
                                        std::vector<bool>(made.region.outputs.size(), true));
  FusionExecutor forward(made.region, services()), back(backward.region, services());
  Tensors outputs = outputs_for(made.region, made.leading);
  REQUIRE(forward.run(made.leading, inputs, outputs));
  Tensors sources;
  for (const auto& source : backward.sources) {
    sources.push_back(source.from == BackwardSource::From::kInput ? inputs[source.index] : outputs[source.index]);
  }
  Tensors first = outputs_for(backward.region, made.leading), second = outputs_for(backward.region, made.leading);
  REQUIRE(back.run(made.leading, sources, first));
  REQUIRE(back.run(made.leading, sources, second));
  for (size_t i = 0; i < first.size(); ++i) CHECK(at::equal(first[i], second[i]));
}

TEST_CASE("region kernels: models are as near to the exact results as with PyTorch's operators") {
  if (!has_device()) return;
  for (const auto& [rows, width, head] :
       std::vector<std::tuple<int64_t, int64_t, int64_t>>{{50, 64, 16}, {33, 770, 8}, {17, 2048, 64}, {129, 96, 6}}) {
    for (const auto& [name, source, sizes] : examples(rows, width, head)) {
      at::manual_seed(3);
      Tensors values;
      for (const auto& size : sizes) values.push_back(at::randn(size, at::kDouble));
      auto plain = module_of(source, false), fused = module_of(source, true);
      for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
        Tensors seen;  // what the type can hold
        for (const auto& value : values) seen.push_back(value.to(dtype));
        const auto exact = results(plain, leaves(seen, at::kDouble), dtype);
        const auto theirs = results(plain, leaves(seen, dtype), dtype),
                   ours = results(fused, leaves(seen, dtype), dtype, 1);
        REQUIRE(ours.size() == theirs.size());
        for (size_t i = 0; i < ours.size(); ++i) {
          INFO(name << ", result " << i << " in " << at::toString(dtype) << ", width " << width);
          CHECK(ours[i].scalar_type() == theirs[i].scalar_type());
          REQUIRE(ours[i].sizes() == theirs[i].sizes());
          const double least = dtype == at::kFloat ? 3e-6 : 0;
          CHECK(distance(ours[i], exact[i]) <= std::max(least, 1.25 * distance(theirs[i], exact[i])));
        }
      }
    }
  }
}

TEST_CASE("region kernels: a region adds the gradient of what goes past it") {
  if (!has_device()) return;
  constexpr char kStream[] = R"(
def forward(self, x, weight, matrix):
    h = weight * (x * torch.rsqrt(x.pow(2).mean([-1], True) + 1e-5))
    x = x + torch.matmul(h, matrix)
    h = weight * (x * torch.rsqrt(x.pow(2).mean([-1], True) + 1e-5))
    return x + torch.matmul(h, matrix)
)";
  for (const int64_t width : {64, 768, 2048}) {
    at::manual_seed(4);
    const Tensors values{at::randn({2, 33, width}, at::kDouble), at::randn({width}, at::kDouble),
                         at::randn({width, width}, at::kDouble) / static_cast<double>(width)};
    auto plain = module_of(kStream, false), fused = module_of(kStream, true);
    CHECK(dslaunch::runtime::model::fusion::add_residual_gradients(fused) == 1);
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      Tensors seen;
      for (const auto& value : values) seen.push_back(value.to(dtype));
      const auto exact = results(plain, leaves(seen, at::kDouble), dtype);
      const auto theirs = results(plain, leaves(seen, dtype), dtype),
                 ours = results(fused, leaves(seen, dtype), dtype, 2);
      for (size_t i = 0; i < ours.size(); ++i) {
        INFO("result " << i << " in " << at::toString(dtype) << ", width " << width);
        const double least = dtype == at::kFloat ? 3e-6 : 0;
        CHECK(distance(ours[i], exact[i]) <= std::max(least, 1.25 * distance(theirs[i], exact[i])));
      }
    }
  }
}

TEST_CASE("region kernels: a GEMM that computes its input again has the same gradients in less memory") {
  if (!has_device()) return;
  namespace layers = dslaunch::runtime::model::layers;
  const int64_t rows = 300, width = 768, columns = 96;
  for (const auto dtype : {at::kBFloat16, at::kHalf, at::kFloat}) {
    Region region{.num_leading_dims = 2};
    Builder build(region);
    const Id x = build.input({dtype, width, {true, true}}), scale = build.input({dtype, width, {false, false}});
    const Id mean = build.row_mean(build.power(x, 2));
    const Id inverse = build.unary(Op::kRsqrt, build.binary(Op::kAdd, mean, build.constant(1e-5)));
    region.outputs.push_back({build.binary(Op::kMultiply, build.binary(Op::kMultiply, x, inverse), scale), dtype});
    at::manual_seed(5);
    const Tensors values{at::randn({2, rows, width}), at::randn({width}), at::randn({columns, width}),
                         at::randn({columns})};
    std::array<int64_t, 2> bytes{};
    std::array<Tensors, 2> gradients;
    for (const size_t is_offered : {0, 1}) {
      const std::vector<size_t> offered(is_offered, 0);
      const auto plan = c10::make_intrusive<RegionPlan>(
          region, Sizes{2, rows}, std::vector<RegionPlan::Result>{{{2, rows, width}, {rows * width, width, 1}}},
          std::vector<size_t>{}, offered, services());
      const Tensors in = leaves(values, dtype);
      const auto requested = [] {
        constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
        return at::getDeviceAllocator(at::kCUDA)->getDeviceStats(0).requested_bytes[kAll].current;
      };
      const int64_t before = requested();
      const at::Tensor out =
          layers::fused_linear(run_region(plan, {in[0], in[1]})[0], in[2], in[3], {.sums_bias = true});
      bytes[is_offered] = requested() - before;
      gradients[is_offered] = torch::autograd::grad({out.sum()}, in);
    }
    INFO(at::toString(dtype));
    CHECK(bytes[0] - bytes[1] == 2 * rows * width * static_cast<int64_t>(c10::elementSize(dtype)));
    for (size_t i = 0; i < values.size(); ++i) CHECK(at::equal(gradients[0][i], gradients[1][i]));
  }
}

TEST_CASE("region kernels: samples of other lengths take the kernels that are there") {
  if (!has_device()) return;
  auto plain = module_of(kRmsNorm, false), fused = module_of(kRmsNorm, true);
  const auto num_kernels = [] {
    const auto counts = services()->kernels->counts();
    return counts.compiled + counts.read;
  };
  int after_first = 0;
  for (const int64_t length : {70, 3, 257, 70, 1000}) {
    INFO("length " << length);
    at::manual_seed(6);
    const Tensors values{at::randn({2, length, 96}), at::randn({2, length, 96}), at::randn({96})};
    const auto expected = results(plain, leaves(values, at::kFloat), at::kFloat);
    const auto found = results(fused, leaves(values, at::kFloat), at::kFloat, 1);
    for (size_t i = 0; i < expected.size(); ++i) CHECK(distance(found[i], expected[i]) <= 2e-5);
    if (after_first == 0) after_first = num_kernels();
    CHECK(num_kernels() == after_first);
  }
}

TEST_CASE("region kernels: results have the layout of PyTorch's") {
  if (!has_device()) return;
  auto plain = module_of(kRotary, false), fused = module_of(kRotary, true);
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor x = at::randn({2, 7, 4, 16}, options), cos = at::randn({1, 1, 7, 16}, options);
  const PlainExecution off;
  CHECK(fused.forward({x, cos, cos}).toTensor().strides() == plain.forward({x, cos, cos}).toTensor().strides());
}

// Microseconds of a forward and a backward, ours beside PyTorch's operators, and what ours moves of the bytes that the
// model's inputs, outputs and their gradients are.
TEST_CASE("region kernels: times", "[.bench]") {
  if (!has_device()) return;
  auto all_examples = examples(4096, 2048, 64);
  for (const auto& narrow : examples(8192, 768, 64)) {
    if (std::string(narrow.name) != "rotary") all_examples.push_back(narrow);
  }
  for (const auto& [name, source, sizes] : all_examples) {
    Tensors inputs;
    for (const auto& size : sizes) {
      inputs.push_back(at::randn(size, at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16)).requires_grad_());
    }
    if (std::string(name) == "rotary") {
      inputs[0] = at::randn({8, 1024, 32, 64}, inputs[0].options().requires_grad(false)).requires_grad_();
      inputs[1] = inputs[2] = at::randn({1, 1, 1024, 64}, inputs[1].options().requires_grad(false));
    }
    for (const bool is_fused : {false, true}) {
      auto model = module_of(source, is_fused);
      const PlainExecution plain;
      double forward_us = 0, backward_us = 0;
      int64_t bytes = 0;
      for (int repeat = 0; repeat < 3; ++repeat) {
        constexpr int kRuns = 20;
        Tensors losses;
        synchronize();
        auto begin = std::chrono::steady_clock::now();
        std::vector<Tensors> all;
        for (int i = 0; i < kRuns; ++i) {
          const auto given = model.forward({inputs.begin(), inputs.end()});
          Tensors outputs;
          if (given.isTuple()) {
            for (const auto& one : given.toTupleRef().elements()) outputs.push_back(one.toTensor());
          } else {
            outputs.push_back(given.toTensor());
          }
          all.push_back(outputs);
        }
        synchronize();
        const auto middle = std::chrono::steady_clock::now();
        Tensors wanted;
        for (const auto& input : inputs) {
          if (input.requires_grad()) wanted.push_back(input);
        }
        Tensors upstream;
        for (const auto& output : all[0]) upstream.push_back(at::ones_like(output.detach()));
        synchronize();
        const auto start = std::chrono::steady_clock::now();
        for (auto& outputs : all) torch::autograd::grad(outputs, wanted, upstream);
        synchronize();
        const auto end = std::chrono::steady_clock::now();
        forward_us = std::chrono::duration<double, std::micro>(middle - begin).count() / kRuns;
        backward_us = std::chrono::duration<double, std::micro>(end - start).count() / kRuns;
        bytes = 0;
        for (const auto& one : inputs) bytes += one.numel() * 2;
        for (const auto& one : all[0]) bytes += one.numel() * 2;
      }
      std::cout << name << ", width " << inputs[0].size(-1) << (is_fused ? ", regions: " : ", PyTorch: ") << forward_us
                << " us forward (at least " << bytes / forward_us / 1e3 << " GB/s), " << backward_us
                << " us backward\n";
    }
  }
}
