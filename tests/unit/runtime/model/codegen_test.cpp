// Every kernel that we generate compiles, for all GPUs that releases support. Without NVRTC it says "not run".
#include "runtime/model/fusion/codegen.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "random_regions.hpp"
#include "runtime/generated_kernels/compiler.hpp"
#include "runtime/model/fusion/autodiff.hpp"
#include "runtime/model/fusion/executor.hpp"

using namespace dslaunch::runtime::model::fusion;
using dslaunch::runtime::generated_kernels::Compiler;
using dslaunch::test::random_region;

namespace {

KernelLayout dense_layout(const Region& region, int vector) {
  return {static_cast<int>(region.num_leading_dims), vector, std::vector<bool>(region.inputs.size())};
}

void check_compiles(const Compiler& compiler, const Region& region, int vector, const char* architecture,
                    bool notes_maxima) {
  auto layout = dense_layout(region, vector);
  layout.notes_maxima = notes_maxima;
  const auto source = kernel_source(region, layout);
  REQUIRE(source.ok());
  const auto cubin = compiler.compile(source->text, architecture);
  if (!cubin.ok()) FAIL(cubin.error() << "\n" << to_text(region) << source->text);
  CHECK(cubin->size() > 100);
}

}  // namespace

TEST_CASE("regions: generated sources compile, forward and backward") {
  const auto compiler = Compiler::find();
  if (!compiler.ok()) {
    WARN("not run: " << compiler.error());
    return;
  }
  for (uint32_t seed = 0; seed < 12; ++seed) {
    const int64_t width = std::array{64, 96, 30, 2048}[seed % 4];
    const auto dtype = std::array{at::kBFloat16, at::kFloat, at::kHalf}[seed % 3];
    const auto region =
        random_region(seed, seed % 2 == 0 ? std::vector<int64_t>{4} : std::vector<int64_t>{2, 3}, width, dtype).region;
    const char* architecture = seed % 2 == 0 ? "sm_90" : "sm_80";
    const bool notes_maxima = seed >= 6;
    check_compiles(**compiler, region, largest_vector(region), architecture, notes_maxima);
    const auto backward = derive_backward(region, std::vector<bool>(region.inputs.size(), true),
                                          std::vector<bool>(region.outputs.size(), true))
                              .region;
    check_compiles(**compiler, backward, seed % 3 == 0 ? 1 : largest_vector(backward), architecture, notes_maxima);
  }
}

TEST_CASE("regions: accesses are as wide as cuts and joints allow") {
  Region region{.num_leading_dims = 1};
  Builder build(region);
  const Id x = build.input({at::kBFloat16, 64, {true}});
  region.outputs.push_back({build.unary(Op::kExp, x), at::kBFloat16});
  CHECK(largest_vector(region) == 8);
  build.slice(x, 4, 16);
  CHECK(largest_vector(region) == 4);
  build.slice(x, 1, 16);
  CHECK(largest_vector(region) == 1);

  Region wide{.num_leading_dims = 1};
  Builder(wide).input({at::kFloat, 64, {true}});
  CHECK(largest_vector(wide) == 4);
}

TEST_CASE("regions: a thread asks for as many chunks at once as keep memory busy") {
  for (const auto& [num_inputs, expected] : {std::pair{1, 4}, {2, 2}, {3, 1}}) {
    Region region{.num_leading_dims = 1};
    Builder build(region);
    Id sum = build.input({at::kBFloat16, 64, {true}});
    for (int i = 1; i < num_inputs; ++i) {
      sum = build.binary(Op::kAdd, sum, build.input({at::kBFloat16, 64, {true}}));
    }
    region.outputs.push_back({sum, at::kBFloat16});
    const auto source = kernel_source(region, dense_layout(region, 8));
    REQUIRE(source.ok());
    CHECK(source->chunks_per_thread == expected);
    CHECK_FALSE(source->loops_over_rows);
  }
}

TEST_CASE("regions: where a row takes a block, blocks go from row to row and all run at once") {
  for (const int64_t width : {512, 2048, 16384}) {
    Region region{.num_leading_dims = 1};
    Builder build(region);
    const Id x = build.input({at::kBFloat16, width, {true}}), weight = build.input({at::kBFloat16, width, {false}});
    region.outputs.push_back(
        {build.binary(Op::kMultiply, build.binary(Op::kSubtract, x, build.row_mean(x)), weight), at::kBFloat16});
    const auto source = kernel_source(region, dense_layout(region, 8));
    REQUIRE(source.ok());
    CHECK(source->loops_over_rows == (width > 512));  // else warps are enough
    if (!source->loops_over_rows) continue;
    CHECK(source->blocks_per_multiprocessor * source->threads <= 2048);
    CHECK(source->blocks_per_multiprocessor * source->threads >= 768);
    // The weight once, each row before its turn.
    const auto loop = source->text.find("for (unsigned first");
    CHECK(source->text.find("kept1[k] = load") < loop);
    CHECK(source->text.find("kept1[k] = load", loop) == std::string::npos);
    CHECK(source->text.find("next0[k] = load") < loop);
    CHECK(source->text.find("next0[k] = load", loop) != std::string::npos);
  }
}

TEST_CASE("regions: what has no kernel is said") {
  Region region{.num_leading_dims = 1};
  Builder build(region);
  region.outputs.push_back({build.input({at::kDouble, 8, {true}}), at::kDouble});
  const auto source = kernel_source(region, dense_layout(region, 1));
  REQUIRE_FALSE(source.ok());
  CHECK(source.error() == "an input in Double");
}

namespace {

// x + y of bf16 [rows..., 64]
Region sum_region(size_t num_leading_dims) {
  Region region{.num_leading_dims = num_leading_dims};
  Builder build(region);
  const std::vector<bool> all(num_leading_dims, true);
  const Id x = build.input({at::kBFloat16, 64, all}), y = build.input({at::kBFloat16, 64, all});
  region.outputs.push_back({build.binary(Op::kAdd, x, y), at::kBFloat16});
  return region;
}

}  // namespace

TEST_CASE("regions: dims that lie one after another in all tensors are one") {
  const auto region = sum_region(3);
  const std::vector<int64_t> leading{2, 3, 5};
  const auto options = at::TensorOptions().dtype(at::kBFloat16);
  const at::Tensor dense = at::empty({2, 3, 5, 64}, options), out = at::empty({2, 3, 5, 64}, options);
  const auto plan = [&](const at::Tensor& x, const at::Tensor& y, const at::Tensor& to) {
    return plan_launch(region, leading, {x, y}, {to});
  };
  const auto all = plan(dense, dense, out);
  CHECK(all.sizes == std::vector<int64_t>{30});
  CHECK(all.strides[0] == std::vector<int64_t>{64, 1});
  CHECK(all.layout.vector == 8);

  // without data, as before the first launch
  const at::Tensor imagined = at::empty({2, 3, 5, 64}, options.device(at::kMeta));
  CHECK(plan(imagined, imagined, imagined).layout == all.layout);

  // shared by the second dim, as cos and sin by the heads
  const auto shared = plan(dense, at::empty({1, 1, 5, 64}, options), out);
  CHECK(shared.sizes == std::vector<int64_t>{6, 5});
  CHECK(shared.varies[1] == std::vector<bool>{false, true});
  CHECK(shared.strides[1] == std::vector<int64_t>{0, 64, 1});

  // a vector for all rows
  const auto row = plan(dense, at::empty({64}, options), out);
  CHECK(row.sizes == std::vector<int64_t>{30});
  CHECK(row.varies[1] == std::vector<bool>{false});

  // all permuted alike: in the order of memory
  const auto permuted = at::empty({2, 5, 3, 64}, options).transpose(1, 2);
  CHECK(plan(permuted, permuted, permuted).sizes == std::vector<int64_t>{30});
  CHECK(plan(permuted, dense, dense).sizes == std::vector<int64_t>{2, 3, 5});
  CHECK(plan(permuted, dense, permuted).sizes == std::vector<int64_t>{2, 5, 3});

  // columns apart
  const auto apart = plan(at::empty({2, 3, 64, 5}, options).transpose(2, 3), dense, out);
  CHECK(apart.layout.has_column_stride == std::vector<bool>{true, false});
  CHECK(apart.layout.vector == 1);

  // rows that do not begin at whole accesses
  CHECK(plan(at::empty({2, 3, 5, 68}, options).narrow(-1, 0, 64), dense, out).layout.vector == 4);
  CHECK(plan(at::empty({2, 3, 5, 67}, options).narrow(-1, 0, 64), dense, out).layout.vector == 1);
}

TEST_CASE("regions: a single row has one dim") {
  const auto region = sum_region(2);
  const at::Tensor row = at::empty({1, 1, 64}, at::kBFloat16);
  const auto launch = plan_launch(region, {1, 1}, {row, row}, {row});
  CHECK(launch.rows == 1);
  CHECK(launch.sizes == std::vector<int64_t>{1});
}
