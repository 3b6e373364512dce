// The operators of tensor parallelism on virtual ranks: forward and backward of the whole operator, and the parts of
// all ranks put together.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "runtime/device/random_state.hpp"
#include "runtime/model/layers/gemm_handle.hpp"
#include "runtime/model/layers/linear.hpp"
#include "runtime/model/tensor_parallel/sharded_cross_entropy.hpp"
#include "runtime/model/tensor_parallel/tensor_operators.hpp"
#include "runtime/model/torchscript/units/gather_node.hpp"
#include "support/mesh_threads.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model::tensor_parallel;

namespace {

// Unequal parts of 13: interleaved, so that ranks have several ranges; with four ranks the last one has nothing.
Layout layout_of_13(int ranks) {
  if (ranks == 2) return {{{0, 3}, {7, 10}}, {{3, 7}, {10, 13}}};
  if (ranks == 3) return {{{0, 6}}, {{6, 7}, {8, 9}}, {{7, 8}, {9, 13}}};
  return {{{0, 5}}, {{5, 6}, {9, 13}}, {{6, 9}}, {}};
}

using OnRank = std::function<at::Tensor(const TensorGroupPtr& group)>;

// What each rank returns.
std::vector<at::Tensor> on_ranks(int ranks, const OnRank& run) {
  std::vector<at::Tensor> out(static_cast<size_t>(ranks));
  test::run_mesh({1, 1, ranks}, [&](const comm::Groups& groups) {
    const auto group = c10::make_intrusive<TensorGroup>(groups.own.tensor, ranks);
    group->set_communicator(*groups.tensor);
    out[static_cast<size_t>(groups.own.tensor)] = run(group);
  });
  return out;
}

at::Tensor random(at::IntArrayRef shape) {
  return at::randn(shape, at::kFloat);
}

at::Tensor leaf(const at::Tensor& value) {
  return value.detach().clone().requires_grad_();
}

at::Tensor gradient_of(const at::Tensor& output, const at::Tensor& upstream, const at::Tensor& input) {
  return torch::autograd::grad({output}, {input}, {upstream})[0];
}

// The parts of all ranks at their places.
at::Tensor joined(const std::vector<at::Tensor>& parts, int64_t dim, const Layout& layout) {
  auto shape = parts[0].sizes().vec();
  shape[static_cast<size_t>(dim)] = 13;
  at::Tensor out = at::full(shape, NAN);
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    int64_t begin = 0;
    for (const Range& range : layout[rank]) {
      out.narrow(dim, range.begin, range.size()).copy_(parts[rank].narrow(dim, begin, range.size()));
      begin += range.size();
    }
  }
  return out;
}

bool near(const at::Tensor& one, const at::Tensor& other, double absolute = 1e-6) {
  return one.sizes() == other.sizes() && at::allclose(one, other, 1e-5, absolute);
}

}  // namespace

TEST_CASE("a value copied to the group collects the gradients of all ranks, a reduced one passes its own", "[tensor]") {
  const int ranks = GENERATE(2, 3, 4);
  const at::Tensor value = random({5, 13}), upstream = random({5, 13});
  const auto gradients = on_ranks(ranks, [&](const TensorGroupPtr& group) {
    const at::Tensor x = leaf(value);
    const at::Tensor partial = copy_to_tensor_group(x, group) * static_cast<double>(group->rank() + 1);
    const at::Tensor sum = reduce_from_tensor_group(partial, group);
    return at::stack({sum.detach(), gradient_of(sum, upstream, x)});
  });
  const double factor = ranks * (ranks + 1) / 2.0;
  for (const auto& found : gradients) {
    CHECK(near(found[0], value * factor));
    CHECK(near(found[1], upstream * factor));
    CHECK(at::equal(found, gradients[0]));  // the same bits on all ranks
  }
}

TEST_CASE("a value cut into parts and gathered is the value, and so is its gradient", "[tensor]") {
  const int ranks = GENERATE(2, 3, 4);
  const int64_t dim = GENERATE(0, 1, 2);
  const Layout layout = layout_of_13(ranks);
  std::vector<int64_t> shape{3, 4, 5};
  shape[static_cast<size_t>(dim)] = 13;
  const at::Tensor value = random(shape), upstream = random(shape);
  const auto gathered = on_ranks(ranks, [&](const TensorGroupPtr& group) {
    const at::Tensor x = leaf(value);
    const at::Tensor part = own_slice(copy_to_tensor_group(x, group), dim, layout, group).sin();
    const at::Tensor whole = gather_from_tensor_group(part, dim, layout, group);
    return at::stack({whole.detach(), gradient_of(whole, upstream, x)});
  });
  for (const auto& found : gathered) {
    CHECK(near(found[0], value.sin()));
    CHECK(near(found[1], upstream * value.cos()));
  }
}

TEST_CASE("positions are reduced, taken and gathered with the gradients of the whole", "[tensor]") {
  const int ranks = GENERATE(2, 3, 4);
  const int64_t dim = GENERATE(0, 1), length = GENERATE(12, 7, 1);  // 7 and 1: not alike on all ranks, or on some none
  std::vector<int64_t> shape{3, 4, 5};
  shape[static_cast<size_t>(dim)] = length;
  const at::Tensor value = random(shape), upstream = random(shape), factor = random(shape);
  const auto found = on_ranks(ranks, [&](const TensorGroupPtr& group) {
    const at::Tensor x = leaf(value), w = leaf(factor);
    const double own = group->rank() + 1;
    // Behind a sum over the ranks, with a whole value, into one that each rank reads for a summand of its own.
    const at::Tensor part = reduce_to_positions(copy_to_tensor_group(x, group) * own, dim, group).sin();
    const at::Tensor product = part * take_positions(w, dim, group);
    const at::Tensor sum = reduce_from_tensor_group(gather_for_parts(product, dim, length, group) * own, group);
    const at::Tensor whole = sum + gather_positions(product, dim, length, group);
    const auto gradients = torch::autograd::grad({whole}, {x, w}, {upstream});
    return at::stack({whole.detach(), gradients[0], gradients[1]});
  });
  const double factors = ranks * (ranks + 1) / 2.0;
  const at::Tensor x = leaf(value), w = leaf(factor);
  const at::Tensor expected = (x * factors).sin() * w * (factors + 1);
  const auto gradients = torch::autograd::grad({expected}, {x, w}, {upstream});
  for (const auto& each : found) {
    CHECK(near(each[0], expected.detach(), 1e-4));
    CHECK(near(each[1], gradients[0], 1e-3));
    CHECK(near(each[2], gradients[1], 1e-4));
    CHECK(at::equal(each, found[0]));
  }
}

TEST_CASE("an embedding of rows that the ranks share looks up what the whole table has", "[tensor]") {
  const int ranks = GENERATE(2, 3, 4);
  const int64_t padding = GENERATE(-1, 6);
  const Layout layout = layout_of_13(ranks);
  const at::Tensor table = random({13, 4}), ids = at::randint(0, 13, {3, 7}), upstream = random({3, 7, 4});
  const at::Tensor whole = leaf(table), expected = at::embedding(whole, ids, padding);
  std::vector<at::Tensor> gradients(static_cast<size_t>(ranks));
  const auto found = on_ranks(ranks, [&](const TensorGroupPtr& group) {
    const auto& own = layout[static_cast<size_t>(group->rank())];
    const at::Tensor weight = leaf(part_of(table, 0, own));
    const at::Tensor partial = embedding_of_slice(weight, ids, padding, false, false, layout, group);
    const at::Tensor sum = reduce_from_tensor_group(partial, group);
    gradients[static_cast<size_t>(group->rank())] = gradient_of(sum, upstream, weight);
    return sum.detach();
  });
  for (const auto& sum : found) CHECK(at::equal(sum, expected.detach()));
  CHECK(near(joined(gradients, 0, layout), gradient_of(expected, upstream, whole)));
}

TEST_CASE("the cross entropy of classes that the ranks share is that of all classes", "[tensor]") {
  const int ranks = GENERATE(2, 3, 4);
  const int64_t reduction = GENERATE(at::Reduction::None, at::Reduction::Mean, at::Reduction::Sum);
  const bool in_float = GENERATE(true, false);
  const double smoothing = GENERATE(0.0, 0.1);
  const bool is_weighted = GENERATE(true, false);
  const auto class_weights = is_weighted ? std::optional(at::rand({13}) + 0.5) : std::nullopt;
  const Layout layout = layout_of_13(ranks);
  const at::Tensor logits = random({9, 13}) * 20;  // exponentials of these differ by more than fp32 has
  const at::Tensor labels = at::randint(0, 13, {9}).index_fill(0, at::tensor({2, 5}, at::kLong), -100);
  const at::Tensor upstream = reduction == at::Reduction::None ? random({9}) : random({});
  const at::Tensor whole = leaf(logits);
  const at::Tensor expected = at::cross_entropy_loss(whole, labels, class_weights, reduction, -100, smoothing);
  std::vector<at::Tensor> gradients(static_cast<size_t>(ranks));
  const auto found = on_ranks(ranks, [&](const TensorGroupPtr& group) {
    const at::Tensor part = leaf(part_of(logits, 1, layout[static_cast<size_t>(group->rank())]));
    const at::Tensor loss = cross_entropy_of_slice(part, labels, {class_weights, reduction, -100, smoothing, in_float},
                                                   c10::make_intrusive<SharedClasses>(layout, group));
    gradients[static_cast<size_t>(group->rank())] = gradient_of(loss, upstream, part);
    return loss.detach();
  });
  // The logarithm of the sum is as large as the logits, up to 80, and exact to fp32's last bits of that; a loss and a
  // gradient near zero are differences of such numbers. A sum over 9 rows has 9 of them.
  constexpr double kRounding = 9 * 80 * 1.2e-7;
  for (const auto& loss : found) {
    CHECK(near(loss, expected.detach(), kRounding));
    CHECK(at::equal(loss, found[0]));
  }
  CHECK(near(joined(gradients, 1, layout), gradient_of(expected, upstream, whole), kRounding));
}

TEST_CASE("ranks drop parts independently, and share what they draw afterwards", "[tensor]") {
  at::manual_seed(3);
  const at::Tensor state = device::save_random_state(at::kCPU);
  std::vector<at::Tensor> parts;
  at::Tensor afterwards;
  for (const int rank : {0, 1, 0}) {
    device::restore_random_state(state, at::kCPU);
    const auto group = c10::make_intrusive<TensorGroup>(rank, 2);
    const at::Tensor part = at::ones({rank == 0 ? 4000 : 3000});
    parts.push_back(dropout_of_slice(part, 0.25, true, group));
    const at::Tensor next = at::rand({8});
    if (!afterwards.defined()) afterwards = next;
    CHECK(at::equal(next, afterwards));
  }
  CHECK(at::equal(parts[0], parts[2]));  // as a recomputation draws
  const at::Tensor one = parts[0].narrow(0, 0, 3000).eq(0), other = parts[1].eq(0);
  CHECK(one.to(at::kFloat).mean().item<double>() == Approx(0.25).margin(0.03));
  CHECK(one.logical_and(other).to(at::kFloat).mean().item<double>() == Approx(0.0625).margin(0.02));
}

TEST_CASE("ranks measure algorithms for the GEMMs that they split alone", "[tensor]") {
  torch::jit::Module net("Net");
  for (const char* name : {"split", "whole"}) net.register_parameter(name, random({4, 4}).requires_grad_(), false);
  net.define("def forward(self, x):\n    return torch.linear(x, self.split) + torch.linear(x, self.whole)\n");
  model::layers::take_weight_gradients(net, /*writes=*/true);
  std::vector<torch::jit::Node*> gemms;
  const auto graph = net.get_method("forward").graph();
  for (auto* node : graph->nodes()) {
    if (std::string_view(node->kind().toQualString()) == model::layers::kLinearOperator) gemms.push_back(node);
  }
  REQUIRE(gemms.size() == 2);
  const auto cache = c10::make_intrusive<device::GemmCache>("");
  const auto handed = [&] {
    return std::pair(model::layers::gemms_of(gemms[0]).cache, model::layers::gemms_of(gemms[1]).cache);
  };
  const torch::jit::WithInsertPoint before(gemms[0]);
  const auto group = c10::make_intrusive<TensorGroup>(0, 2);
  gemms[0]->replaceInput(0, insert_tensor_operator(*graph, kCopyOperator, gemms[0]->input(0), group));
  CHECK(model::layers::hand_gemms(net, cache) == 1);
  CHECK(handed() == std::pair(cache, device::GemmCachePtr()));
}

TEST_CASE("gradients of gradients pass through the collectives", "[tensor]") {
  const at::Tensor value = random({3, 5});
  const auto penalty = [](const at::Tensor& output, const at::Tensor& x) {
    const auto first = torch::autograd::grad({output.pow(3).sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    return torch::autograd::grad({first.square().sum()}, {x})[0];
  };
  const at::Tensor whole = leaf(value);
  const at::Tensor expected = penalty(whole * 3.0, whole);
  const auto found = on_ranks(2, [&](const TensorGroupPtr& group) {
    const at::Tensor x = leaf(value);
    const double factor = group->rank() + 1;
    return penalty(reduce_from_tensor_group(copy_to_tensor_group(x, group) * factor, group), x);
  });
  for (const auto& gradient : found) CHECK(near(gradient, expected, 1e-3));
  const auto of_positions = on_ranks(2, [&](const TensorGroupPtr& group) {
    const at::Tensor x = leaf(value);
    const double factor = group->rank() + 1;
    const at::Tensor part = reduce_to_positions(copy_to_tensor_group(x, group) * factor, 1, group);
    return penalty(gather_positions(part, 1, 5, group), x);
  });
  for (const auto& gradient : of_positions) CHECK(near(gradient, expected, 1e-3));
}

TEST_CASE("an embedding of shared rows divides its gradient by the uses of each row", "[tensor]") {
  const Layout layout = layout_of_13(3);
  const at::Tensor table = random({13, 4}), ids = at::randint(0, 13, {3, 7}), upstream = random({3, 7, 4});
  const at::Tensor whole = leaf(table);
  const at::Tensor expected = gradient_of(at::embedding(whole, ids, -1, /*scale_grad_by_freq=*/true), upstream, whole);
  const auto parts = on_ranks(3, [&](const TensorGroupPtr& group) {
    const at::Tensor weight = leaf(part_of(table, 0, layout[static_cast<size_t>(group->rank())]));
    const at::Tensor rows = embedding_of_slice(weight, ids, -1, true, false, layout, group);
    return gradient_of(reduce_from_tensor_group(rows, group), upstream, weight);
  });
  CHECK(near(joined(parts, 0, layout), expected));
}

namespace {

// A unit with one weight, which is never asked for: keeps its gradient.
struct HeldGradient : UnitParameters {
  UnitValues acquire(int, UnitCall) override { return {}; }
  void release(int) override {}
  void prepare_backward(int) override {}
  void take_gradients(int, std::vector<at::Tensor> gradients) override { gradient = gradients.at(0); }
  at::Tensor gradient;
};

}  // namespace

TEST_CASE("weight gradients that wait for the sum of an input's gradient to begin are the same", "[tensor]") {
  const at::Tensor input = random({3, 5, 4}), values = random({6, 4});
  const bool of_positions = GENERATE(false, true);
  const auto run = [&](bool overlaps) {
    return on_ranks(2, [&](const TensorGroupPtr& group) {
      if (overlaps) group->overlap(at::kCPU);
      HeldGradient unit;
      const auto call = std::make_shared<model::units::CallInBackward>();
      call->parameters = &unit;
      std::vector<at::Tensor> weights{values.clone()};
      model::units::attach_gather_node(weights, call);
      const at::Tensor x = leaf(input);
      const at::Tensor copied = of_positions ? gather_for_parts(take_positions(x, 1, group), 1, x.size(1), group)
                                             : copy_to_tensor_group(x, group);
      DSL_CHECK(is_reduced_in_backward(copied) == overlaps, "the sum overlaps where it was asked for");
      const at::Tensor output = model::layers::fused_linear(copied, weights[0], {}, {.sums_bias = false}) *
                                static_cast<double>(group->rank() + 1);
      output.square().sum().backward();
      return at::cat({x.grad().flatten(), unit.gradient.flatten()});
    });
  };
  const auto found = run(true), expected = run(false);
  for (size_t rank = 0; rank < found.size(); ++rank) CHECK(at::equal(found[rank], expected[rank]));
}
