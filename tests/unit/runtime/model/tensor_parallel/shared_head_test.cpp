// A head whose classes tensor ranks share, by chunks of rows: the loss, and the gradients of what each rank holds, are
// those of the whole head.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>

#include "runtime/model/layers/chunked_head.hpp"
#include "runtime/model/tensor_parallel/tensor_operators.hpp"
#include "support/mesh_threads.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model::layers;
using namespace dslaunch::runtime::model::tensor_parallel;

namespace {

constexpr int64_t kClasses = 13, kWidth = 4, kRows = 10;

struct Case {
  Layout layout;
  bool is_out_in = true, has_bias = true;
  int64_t reduction = at::Reduction::Mean, ignore_index = -100;
  at::ScalarType dtype = at::kDouble;
  int64_t chunk_rows = 4;
};

struct Numbers {
  at::Tensor loss;
  std::vector<at::Tensor> gradients;  // of input, weight and bias
};

// Of a loss of leaves like these, each its own.
template <typename Loss>
Numbers numbers(const std::vector<at::Tensor>& values, const Loss& loss) {
  std::vector<at::Tensor> leaves;
  for (const auto& value : values) leaves.push_back(value.detach().clone().requires_grad_());
  const at::Tensor total = loss(leaves);
  return {total.detach(), torch::autograd::grad({total * 3.0}, leaves)};
}

void check_shared_head(const Case& c, double bound) {
  at::manual_seed(5);
  std::vector<at::Tensor> values{at::randn({2, kRows / 2, kWidth}) * 3, at::randn({kClasses, kWidth})};
  if (!c.is_out_in) values[1] = values[1].t();
  if (c.has_bias) values.push_back(at::randn({kClasses}));
  for (auto& value : values) value = value.to(c.dtype);
  at::Tensor labels = at::arange(kRows, at::kLong).mul(5).remainder(kClasses);
  labels.index_fill_(0, at::tensor({1, 6}, at::kLong), c.ignore_index);
  const int64_t classes_dim = c.is_out_in ? 0 : 1;

  const Numbers whole = numbers(values, [&](const auto& leaves) {
    const at::Tensor weight = c.is_out_in ? leaves[1] : leaves[1].t();
    const at::Tensor logits = at::linear(leaves[0].to(at::kDouble), weight.to(at::kDouble),
                                         c.has_bias ? leaves[2].to(at::kDouble) : std::optional<at::Tensor>());
    return at::cross_entropy_loss(logits.view({-1, kClasses}), labels, {}, c.reduction, c.ignore_index);
  });
  std::vector<Numbers> ranks(c.layout.size());
  test::run_mesh({1, 1, static_cast<int>(c.layout.size())}, [&](const comm::Groups& groups) {
    const auto rank = static_cast<size_t>(groups.own.tensor);
    const auto group = c10::make_intrusive<TensorGroup>(groups.own.tensor, groups.mesh.tensor);
    group->set_communicator(*groups.tensor);
    auto own = values;
    own[1] = part_of(own[1], classes_dim, c.layout[rank]);
    if (c.has_bias) own[2] = part_of(own[2], 0, c.layout[rank]);
    const HeadLoss loss{.is_out_in = c.is_out_in,
                        .reduction = c.reduction,
                        .ignore_index = c.ignore_index,
                        .in_float = c.dtype != at::kDouble,
                        .chunk_rows = c.chunk_rows,
                        .shared = c10::make_intrusive<SharedClasses>(c.layout, group)};
    ranks[rank] = numbers(own, [&](const auto& leaves) {
      return chunked_cross_entropy(copy_to_tensor_group(leaves[0], group), leaves[1],
                                   c.has_bias ? leaves[2] : std::optional<at::Tensor>(), labels, {}, loss);
    });
  });

  const auto check_close = [&](const at::Tensor& found, const at::Tensor& expected) {
    REQUIRE(found.sizes() == expected.sizes());
    if (expected.numel() == 0) return;
    const double largest = std::max(1e-3, expected.abs().max().item<double>());
    CHECK((found.to(at::kDouble) - expected).abs().max().item<double>() <= bound * largest);
  };
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    INFO("rank " << rank << " of " << ranks.size());
    const auto& found = ranks[rank];
    check_close(found.loss, whole.loss);
    CHECK(at::equal(found.loss, ranks[0].loss));
    check_close(found.gradients[0], whole.gradients[0]);
    CHECK(at::equal(found.gradients[0], ranks[0].gradients[0]));
    check_close(found.gradients[1], part_of(whole.gradients[1], classes_dim, c.layout[rank]));
    if (c.has_bias) check_close(found.gradients[2], part_of(whole.gradients[2], 0, c.layout[rank]));
  }
}

const Layout kHalves = {{{0, 7}}, {{7, 13}}}, kThirds = {{{0, 2}, {9, 11}}, {{2, 9}}, {{11, 13}}};

}  // namespace

TEST_CASE("a head of shared classes has the whole head's loss and gradients", "[tensor][shared_head]") {
  for (const auto& layout : {kHalves, kThirds}) {
    for (const int64_t chunk_rows : {0, 4}) {
      check_shared_head({.layout = layout, .chunk_rows = chunk_rows}, 1e-12);
      check_shared_head({.layout = layout, .is_out_in = false, .has_bias = false, .chunk_rows = chunk_rows}, 1e-12);
    }
    check_shared_head({.layout = layout, .reduction = at::Reduction::Sum, .chunk_rows = 3}, 1e-12);
  }
}

TEST_CASE("labels to ignore may be a class", "[tensor][shared_head]") {
  for (const int64_t ignored : {0, 7, 12}) check_shared_head({.layout = kHalves, .ignore_index = ignored}, 1e-12);
}

TEST_CASE("a head of shared classes rounds as its type does", "[tensor][shared_head]") {
  check_shared_head({.layout = kThirds, .dtype = at::kFloat}, 2e-6);
  check_shared_head({.layout = kThirds, .dtype = at::kBFloat16}, 2e-2);
  check_shared_head({.layout = kThirds, .dtype = at::kHalf}, 4e-3);
}

TEST_CASE("a head of which some rank has no class", "[tensor][shared_head]") {
  check_shared_head({.layout = {{{0, 6}}, {}, {{6, 13}}}, .dtype = at::kFloat}, 2e-6);
}

TEST_CASE("a label that is not a class ends a shared head's loss", "[tensor][shared_head]") {
  const auto group = c10::make_intrusive<TensorGroup>(0, 2);
  const SharedClasses classes(kHalves, group);
  CHECK_NOTHROW(classes.local_labels(at::tensor({0, 12, -100}, at::kLong), -100));
  CHECK_THROWS(classes.local_labels(at::tensor({0, 13}, at::kLong), -100));
  CHECK_THROWS(classes.local_labels(at::tensor({-1}, at::kLong), -100));
}
