// A head and its loss a part of the rows at a time: the numbers are autograd's, and which models get it.
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/torch.h>

#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/model/layers/chunked_head.hpp"
#include "runtime/model/torchscript/graph_passes.hpp"
#include "script_fixtures.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::model;
using layers::chunked_cross_entropy;
using layers::HeadLoss;

namespace {

constexpr int64_t kIgnored = -100;

struct Case {
  at::Tensor input, labels;
  int64_t classes = 7;
  bool is_out_in = true, has_bias = false;
  int64_t reduction = at::Reduction::Mean;
  at::ScalarType dtype = at::kDouble;
};

struct Numbers {
  at::Tensor loss;
  std::vector<at::Tensor> gradients;  // of input, weight and bias
};

std::vector<at::Tensor> values_of(const Case& c) {
  torch::manual_seed(11);
  const int64_t width = c.input.size(-1);
  std::vector<at::Tensor> out{c.input, c.is_out_in ? at::randn({c.classes, width}) : at::randn({width, c.classes})};
  if (c.has_bias) out.push_back(at::randn({c.classes}));
  for (auto& value : out) value = value.to(c.dtype);
  return out;
}

template <typename Loss>
Numbers numbers(const Case& c, double upstream, const Loss& loss) {
  std::vector<at::Tensor> leaves;
  for (const auto& value : values_of(c)) leaves.push_back(value.detach().set_requires_grad(true));
  const auto bias = c.has_bias ? std::optional(leaves[2]) : std::nullopt;
  const at::Tensor total = loss(leaves[0], leaves[1], bias);
  (total * upstream).backward();
  Numbers out{total.detach(), {}};
  for (const auto& leaf : leaves) out.gradients.push_back(leaf.grad());
  return out;
}

HeadLoss head_loss(const Case& c, int64_t chunk_rows) {
  return {.is_out_in = c.is_out_in,
          .classes = c.classes,
          .reduction = c.reduction,
          .ignore_index = kIgnored,
          .in_float = c.dtype == at::kBFloat16 || c.dtype == at::kHalf,
          .chunk_rows = chunk_rows};
}

Numbers ours(const Case& c, double upstream, int64_t chunk_rows) {
  return numbers(c, upstream, [&](const auto& input, const auto& weight, const auto& bias) {
    const at::Tensor total = chunked_cross_entropy(input, weight, bias, c.labels, {}, head_loss(c, chunk_rows));
    CHECK(total.grad_fn()->name().find("ChunkedCrossEntropy") != std::string::npos);
    return total;
  });
}

Numbers autograd(Case c, double upstream) {
  const auto seen = c.dtype;
  return numbers(c, upstream, [&](const auto& input, const auto& weight, const auto& bias) {
    const at::Tensor wide = input.to(at::kDouble).reshape({-1, input.size(-1)}), matrix = weight.to(at::kDouble);
    at::Tensor logits = wide.matmul(c.is_out_in ? matrix.t() : matrix);
    if (bias) logits = logits + bias->to(at::kDouble);
    if (seen == at::kBFloat16 || seen == at::kHalf) logits = logits.to(seen).to(at::kDouble);
    return at::cross_entropy_loss(logits, c.labels, {}, c.reduction, kIgnored);
  });
}

void check_close(const Numbers& found, const Numbers& expected, double bound) {
  const auto distance = [](const at::Tensor& a, const at::Tensor& b) {
    return ((a.to(at::kDouble) - b.to(at::kDouble)).norm() / (b.to(at::kDouble).norm() + 1e-30)).item<double>();
  };
  CHECK(distance(found.loss, expected.loss) <= bound);
  REQUIRE(found.gradients.size() == expected.gradients.size());
  for (size_t i = 0; i < found.gradients.size(); ++i) {
    INFO("gradient " << i);
    CHECK(found.gradients[i].scalar_type() == expected.gradients[i].scalar_type());
    CHECK(found.gradients[i].sizes() == expected.gradients[i].sizes());
    CHECK(distance(found.gradients[i], expected.gradients[i]) <= bound);
  }
}

at::Tensor labels_of(int64_t rows, int64_t classes, bool ignores = true) {
  at::Tensor out = at::arange(rows, at::kLong).mul(5).remainder(classes);
  for (int64_t row = 1; ignores && row < rows; row += 3) out[row] = kIgnored;
  return out;
}

}  // namespace

TEST_CASE("a head's loss by chunks of rows has autograd's numbers", "[runtime][model][chunked]") {
  torch::manual_seed(1);
  const bool is_out_in = GENERATE(true, false), has_bias = GENERATE(true, false);
  const int64_t reduction = GENERATE(at::Reduction::Mean, at::Reduction::Sum);
  const int64_t chunk_rows = GENERATE(0, 1, 4, 5, 100);
  const int64_t classes = GENERATE(1, 7);
  for (const auto& input : {at::randn({10, 4}), at::randn({1, 4}), at::randn({2, 5, 4}), at::randn({4, 10}).t(),
                            at::randn({5, 2, 4}).transpose(0, 1), at::randn({10, 9}).narrow(1, 3, 4), at::randn({4})}) {
    INFO("input " << input.sizes() << " with strides " << input.strides() << ", chunks of " << chunk_rows << ", "
                  << classes << " classes, out_in " << is_out_in << ", bias " << has_bias);
    const Case c{.input = input,
                 .labels = labels_of(input.numel() / 4, classes),
                 .classes = classes,
                 .is_out_in = is_out_in,
                 .has_bias = has_bias,
                 .reduction = reduction};
    for (const double upstream : {1.0, 0.125, 1024.0})
      check_close(ours(c, upstream, chunk_rows), autograd(c, upstream), 1e-12);
  }
}

TEST_CASE("a head's loss by chunks in narrower types rounds as they do", "[runtime][model][chunked]") {
  torch::manual_seed(2);
  const auto [dtype, bound] =
      GENERATE(std::pair(at::kFloat, 1e-6), std::pair(at::kBFloat16, 1e-2), std::pair(at::kHalf, 2e-3));
  const Case c{
      .input = at::randn({3, 7, 4}), .labels = labels_of(21, 9), .classes = 9, .has_bias = true, .dtype = dtype};
  const double upstream = dtype == at::kHalf ? 4096.0 : 0.5;
  for (const int64_t chunk_rows : {0, 4}) check_close(ours(c, upstream, chunk_rows), autograd(c, upstream), bound);
}

TEST_CASE("in fp16 the loss scale keeps small gradients of a head, and overflows are seen",
          "[runtime][model][chunked]") {
  torch::manual_seed(3);
  const Case c{.input = at::randn({40, 4}), .labels = at::zeros({40}, at::kLong), .classes = 2, .dtype = at::kHalf};
  Case small = c;
  small.input = at::full({40, 4}, 6.0);  // every row is nearly sure of its class or wrong about it
  const auto found = ours(small, 65536.0, 16), expected = autograd(small, 65536.0);
  check_close(found, expected, 1e-2);
  CHECK_FALSE(ours(c, 1e9, 16).gradients[1].isfinite().all().item<bool>());
}

TEST_CASE("a head's loss without labels that count is not a number, its gradients are zero",
          "[runtime][model][chunked]") {
  const auto dtype = GENERATE(at::kDouble, at::kFloat, at::kHalf);
  const Case c{
      .input = at::randn({5, 4}), .labels = at::full({5}, kIgnored, at::kLong), .has_bias = true, .dtype = dtype};
  const auto found = ours(c, 1, 2), expected = autograd(c, 1);
  CHECK(expected.loss.isnan().item<bool>());
  CHECK(found.loss.isnan().item<bool>());
  for (size_t i = 0; i < 3; ++i) CHECK(at::equal(found.gradients[i], expected.gradients[i]));
}

TEST_CASE("only wanted gradients of a head are computed", "[runtime][model][chunked]") {
  torch::manual_seed(4);
  const auto dtype = GENERATE(at::kFloat, at::kHalf);
  const at::Tensor x = at::randn({6, 4}).to(dtype), w = at::randn({7, 4}).to(dtype), labels = labels_of(6, 7);
  const HeadLoss loss{.classes = 7, .in_float = true, .chunk_rows = 4};
  const auto all = [&](bool of_input, bool of_weight) {
    const at::Tensor input = x.detach().clone().set_requires_grad(of_input),
                     weight = w.detach().clone().set_requires_grad(of_weight);
    chunked_cross_entropy(input, weight, {}, labels, {}, loss).backward();
    return std::pair(input.grad(), weight.grad());
  };
  const auto both = all(true, true), of_input = all(true, false), of_weight = all(false, true);
  CHECK(at::equal(both.first, of_input.first));
  CHECK(at::equal(both.second, of_weight.second));
  CHECK_FALSE(of_input.second.defined());
  CHECK_FALSE(of_weight.first.defined());
  const at::NoGradGuard evaluation;
  CHECK_FALSE(chunked_cross_entropy(x, w, {}, labels, {}, loss).requires_grad());
}

TEST_CASE("the GEMMs that count as a head's forward are those of its logits", "[runtime][model][chunked]") {
  static int num_gemms = 0;
  num_gemms = 0;
  const auto begin = [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
    num_gemms += std::string_view(function.name()) == "aten::mm" ? 1 : 0;
    return nullptr;
  };
  const at::Tensor x = at::randn({6, 4}).set_requires_grad(true), w = at::randn({7, 4}).set_requires_grad(true);
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(begin));
  chunked_cross_entropy(x, w, {}, labels_of(6, 7), {}, {.classes = 7, .chunk_rows = 4});
  at::removeCallback(handle);
  CHECK(num_gemms == 2);
}

TEST_CASE("a head's backward may be repeated, and differentiated again", "[runtime][model][chunked]") {
  torch::manual_seed(5);
  const at::Tensor x = at::randn({6, 4}, at::kDouble).set_requires_grad(true),
                   w = at::randn({7, 4}, at::kDouble).set_requires_grad(true), labels = labels_of(6, 7);
  const auto by_chunks = chunked_cross_entropy(x, w, {}, labels, {}, {.classes = 7, .chunk_rows = 4});
  const auto plain = at::cross_entropy_loss(x.matmul(w.t()), labels);
  SECTION("repeated") {
    const auto expected = torch::autograd::grad({plain}, {x, w});
    for (const bool keeps : {true, true, false}) {
      const auto found = torch::autograd::grad({by_chunks}, {x, w}, {}, keeps);
      for (size_t i = 0; i < 2; ++i) CHECK(at::allclose(found[i], expected[i], 1e-12, 1e-12));
    }
  }
  SECTION("again") {
    const auto penalty = [&](const at::Tensor& loss) {
      const auto first = torch::autograd::grad({loss}, {x}, {}, true, /*create_graph=*/true)[0];
      return torch::autograd::grad({first.square().sum()}, {x, w});
    };
    const auto found = penalty(by_chunks), expected = penalty(plain);
    for (size_t i = 0; i < 2; ++i) CHECK(at::allclose(found[i], expected[i], 1e-10, 1e-10));
  }
}

TEST_CASE("other losses of a head are left to the operators, bit by bit", "[runtime][model][chunked]") {
  torch::manual_seed(6);
  const at::Tensor x = at::randn({6, 4}).set_requires_grad(true), w = at::randn({7, 4}).set_requires_grad(true);
  const at::Tensor labels = labels_of(6, 7), class_weights = at::rand({7});
  const auto logits = at::linear(x, w);
  const auto is_same = [&](const at::Tensor& found, const at::Tensor& expected) {
    CHECK(found.grad_fn()->name().find("ChunkedCrossEntropy") == std::string::npos);
    CHECK(at::equal(found, expected));
  };
  is_same(chunked_cross_entropy(x, w, {}, labels, {}, {.classes = 7, .label_smoothing = 0.1}),
          at::cross_entropy_loss(logits, labels, {}, 1, kIgnored, 0.1));
  is_same(chunked_cross_entropy(x, w, {}, labels, class_weights, {.classes = 7}),
          at::cross_entropy_loss(logits, labels, class_weights));
  is_same(chunked_cross_entropy(x, w, {}, labels, {}, {.classes = 7, .reduction = 0}),
          at::cross_entropy_loss(logits, labels, {}, 0));
  const auto folded = at::arange(3, at::kLong);  // a view in other rows than those of the GEMM
  is_same(chunked_cross_entropy(x, w, {}, folded, {}, {.classes = 14}),
          at::cross_entropy_loss(logits.reshape({3, 14}), folded));
  const at::Tensor soft = at::rand({6, 7});
  is_same(chunked_cross_entropy(x, w, {}, soft, {}, {.classes = 7}), at::cross_entropy_loss(logits, soft));
  CHECK_THROWS(chunked_cross_entropy(x, w, {}, at::full({6}, 7, at::kLong), {}, {.classes = 7}));
}

namespace {

using torch::jit::Module;

constexpr char kLinear[] = "def forward(self, x):\n    return torch.linear(x, self.weight, self.bias)\n";

Module linear_head(const std::string& forward = kLinear, at::IntArrayRef shape = {7, 4}) {
  Module head("Head");
  test::add_parameter(head, "weight", shape);
  test::add_parameter(head, "bias", {7});
  head.define(forward);
  return head;
}

// forward(x [2, 3, 4], labels [2, 3]) of a block and a head; `loss`: its lines after `hidden`.
Module net_with(const std::string& loss, const Module& head = linear_head()) {
  return test::make_net("def forward(self, x, labels):\n    hidden = self.block.forward(x) * self.scale\n" + loss,
                        {{"block", test::make_layer()}, {"head", head}});
}

bool is_chunked(Module net) {
  passes::PassContext context{.module = net,
                              .options = {.kernels = {.chunked_cross_entropy = true}, .chunks_cross_entropy = true}};
  passes::run_passes(torchscript::graph_passes(), passes::PassNeeds::kGraphs, passes::PassTarget::kModel, context);
  return net.get_method("forward").graph()->toString(false).find("dslaunch::chunked_cross_entropy") !=
         std::string::npos;
}

// A step has plain autograd's numbers, with and without chunks, whatever the units.
void check_numbers(const Module& net) {
  torch::manual_seed(7);
  const std::vector<at::Tensor> inputs{at::randn({2, 3, 4}), at::tensor({1, 2, -100, 0, 6, 5}, at::kLong).view({2, 3})};
  for (const std::vector<std::string>& units : {std::vector<std::string>{}, {"Block"}, {"Block", "Head"}}) {
    // With fused regions too, as on GPUs.
    test::ModelRun run(
        net, units, false,
        {.kernels = {.chunked_cross_entropy = true}, .regions_on_cpu = true, .chunks_cross_entropy = true});
    run.model->runnable->set_device(at::kCPU, at::kFloat);
    const auto expected = run.plain_step(inputs), found = run.step(inputs);
    CHECK(at::allclose(found.loss, expected.loss, 1e-6, 1e-6));
    REQUIRE(found.gradients.size() == expected.gradients.size());
    for (const auto& [name, gradient] : expected.gradients) {
      INFO(name);
      REQUIRE(found.gradients.count(name) == 1);
      CHECK(at::allclose(found.gradients.at(name), gradient, 1e-5, 1e-6));
    }
    CHECK(run.gathered->num_held() == 0);
    const at::NoGradGuard evaluation;
    CHECK(at::allclose(run.forward(inputs), expected.loss, 1e-6, 1e-6));
  }
}

}  // namespace

TEST_CASE("heads whose logits only the loss reads are chunked, with the model's numbers", "[runtime][model][chunked]") {
  for (const char* loss : {
           "    logits = self.head.forward(hidden)\n"
           "    return torch.cross_entropy_loss(logits.view(-1, logits.size(-1)).float(), labels.reshape(-1))\n",
           "    logits = self.head.forward(hidden).float()\n"
           "    return torch.cross_entropy_loss(logits.view(6, 7), labels.view(-1), None, 2)\n",
           "    logits = self.head.forward(hidden)[:, :-1, :].contiguous()\n"
           "    return torch.cross_entropy_loss(logits.view(-1, 7), labels[:, 1:].contiguous().view(-1))\n",
           "    logits = self.head.forward(hidden)[..., 1:, :]\n"
           "    return torch.cross_entropy_loss(logits.reshape(-1, 7), labels[:, :-1].reshape(-1), None, 1, -100)\n",
           "    logits = torch.matmul(hidden, self.head.weight.t())\n"
           "    return torch.cross_entropy_loss(logits.view(-1, logits.size(-1)), labels.view(-1))\n",
           "    logits = torch.addmm(self.head.bias, hidden.view(-1, 4), self.head.weight.t())\n"
           "    return torch.cross_entropy_loss(logits.view(-1, 7), labels.view(-1))\n",
           "    logits = self.head.forward(hidden)\n    n = logits.size(-1)\n"
           "    loss = torch.cross_entropy_loss(logits.view(-1, n), labels.view(-1))\n    return loss * "
           "logits.size(-1)\n",
       }) {
    CAPTURE(loss);
    CHECK(is_chunked(net_with(loss)));
    check_numbers(net_with(loss));
  }
}

TEST_CASE("heads of inner modules are chunked", "[runtime][model][chunked]") {
  Module inner("Inner");
  inner.register_module("head", linear_head());
  inner.define("def forward(self, x):\n    return self.head.forward(torch.tanh(x))\n");
  const auto net = net_with(
      "    logits = self.head.forward(hidden)\n"
      "    return torch.cross_entropy_loss(logits.view(-1, 7).float(), labels.view(-1))\n",
      inner);
  CHECK(is_chunked(net));
  check_numbers(net);
}

TEST_CASE("heads whose logits are needed elsewhere, or of another form, stay", "[runtime][model][chunked]") {
  const std::string loss = "    loss = torch.cross_entropy_loss(logits.view(-1, 7).float(), labels.view(-1))\n";
  for (const std::string& lines : {
           "    logits = self.head.forward(hidden)\n" + loss + "    return loss, logits\n",
           "    logits = self.head.forward(hidden)\n" + loss + "    return loss + logits.max()\n",
           "    logits = self.head.forward(hidden)\n" + loss + "    return loss * logits.size(0)\n",
           "    logits = self.head.forward(hidden)\n    hidden.mul_(2)\n" + loss + "    return loss\n",
           "    logits = torch.tanh(self.head.forward(hidden))\n" + loss + "    return loss\n",
           // the classes themselves are sliced
           std::string("    logits = self.head.forward(hidden).view(6, 7)[:, :5]\n"
                       "    return torch.cross_entropy_loss(logits, labels.view(-1).clamp(-100, 4))\n"),
           std::string("    logits = self.head.forward(hidden)[:, :, :5]\n"
                       "    return torch.cross_entropy_loss(logits.reshape(-1, 5), labels.view(-1).clamp(-100, 4))\n"),
           // the classes are not last
           std::string("    logits = self.head.forward(hidden).transpose(1, 2)\n"
                       "    return torch.cross_entropy_loss(logits, labels)\n"),
       }) {
    CAPTURE(lines);
    CHECK_FALSE(is_chunked(net_with(lines)));
  }
}

TEST_CASE("chunks of a head have a switch, and are off on CPUs", "[runtime][model][chunked]") {
  const auto net = net_with(
      "    logits = self.head.forward(hidden)\n"
      "    return torch.cross_entropy_loss(logits.view(-1, 7), labels.view(-1))\n");
  for (const auto& options :
       {GraphPassOptions{}, GraphPassOptions{.kernels = {.chunked_cross_entropy = false}, .chunks_cross_entropy = true},
        GraphPassOptions{.kernels = {.cross_entropy = false, .chunked_cross_entropy = true},
        .chunks_cross_entropy = true}}) {
    const auto copy = net.clone();
    passes::PassContext context{.module = copy, .options = options};
    passes::run_passes(torchscript::graph_passes(), passes::PassNeeds::kGraphs, passes::PassTarget::kModel, context);
    CHECK(copy.get_method("forward").graph()->toString(false).find("chunked") == std::string::npos);
  }
}
