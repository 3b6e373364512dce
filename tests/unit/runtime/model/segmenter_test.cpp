// Models whose operators were extracted into regions compute what they computed before, forward and backward, and the
// regions are as few as they can be. On the CPU, by the reference.
#include "runtime/model/fusion/segmenter.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/script.h>

#include <catch2/catch.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "autograd_nodes.hpp"
#include "runtime/model/fusion/fused_operator.hpp"
#include "runtime/model/torchscript/plain_execution.hpp"

using namespace dslaunch::runtime::model;
using fusion::fuse_regions;
using fusion::partition;
using fusion::PartitionItem;
using torch::jit::Module;
using torch::jit::Node;
using Tensors = std::vector<at::Tensor>;

namespace {

constexpr char kRmsNorm[] = R"(
def forward(self, x, weight):
    h = x.to(6)  # fp32
    variance = h.pow(2).mean([-1], True)
    h = h * torch.rsqrt(variance + 1e-5)
    return weight * h.to(x.dtype)
)";

constexpr char kResidualNorm[] = R"(
def forward(self, x, y, weight):
    h = x + y
    variance = h.pow(2).mean([-1], True)
    return h, weight * (h * torch.rsqrt(variance + 1e-5))
)";

constexpr char kSwiGlu[] = R"(
def forward(self, gate, up):
    return torch.silu(gate) * up
)";

constexpr char kChunkedSwiGlu[] = R"(
def forward(self, x):
    gate, up = x.chunk(2, -1)
    return torch.silu(gate) * up
)";

constexpr char kSplitGate[] = R"(
def forward(self, x):
    a, b, c = x.split_with_sizes([4, 8, 2], -1)
    return torch.sigmoid(a).sum(-1, True) * torch.tanh(b) + torch.relu(c).mean([-1], True)
)";

constexpr char kNewGelu[] = R"(
def forward(self, x):
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0))))
)";

constexpr char kRotary[] = R"(
def forward(self, q, cos, sin):
    half = q.size(-1) // 2
    x1 = q[:, :, :, :half]
    x2 = q[:, :, :, half:]
    return q * cos + torch.cat([-x2, x1], -1) * sin
)";

constexpr char kSoftmax[] = R"(
def forward(self, x, mask):
    return torch.softmax(x.masked_fill(mask > 0.0, -10000.0) * 0.3, -1)
)";

constexpr char kLayerNorm[] = R"(
def forward(self, x, y, weight, bias):
    return torch.layer_norm(x + y, [16], weight, bias, 1e-5)
)";

constexpr char kChosen[] = R"(
def forward(self, x, y):
    return torch.where(x > y, torch.clamp(x, -0.5, 0.7), torch.relu(y)) / (1.0 + torch.abs(x))
)";

struct Example {
  const char* name;
  const char* source;
  std::vector<std::vector<int64_t>> sizes;
};

std::vector<Example> examples() {
  return {{"RMSNorm", kRmsNorm, {{2, 3, 16}, {16}}},
          {"residual and norm", kResidualNorm, {{2, 3, 16}, {2, 3, 16}, {16}}},
          {"SwiGLU", kSwiGlu, {{2, 3, 10}, {2, 3, 10}}},
          {"SwiGLU of chunks", kChunkedSwiGlu, {{2, 3, 20}}},
          {"gates of a split", kSplitGate, {{2, 3, 14}}},
          {"GELU", kNewGelu, {{4, 7}}},
          {"rotary", kRotary, {{2, 3, 5, 8}, {1, 1, 5, 8}, {1, 1, 5, 8}}},
          {"softmax", kSoftmax, {{2, 3, 9}, {2, 1, 9}}},
          {"layer norm", kLayerNorm, {{5, 16}, {5, 16}, {16}, {16}}},
          {"choices", kChosen, {{3, 6}, {6}}}};
}

Module module_of(const std::string& source) {
  Module model("Net");
  model.define(source);
  return model;
}

int count(const torch::jit::Block* block, const std::string& kind) {
  int out = 0;
  for (const Node* node : block->nodes()) {
    out += node->kind().toQualString() == kind ? 1 : 0;
    for (const auto* inner : node->blocks()) out += count(inner, kind);
  }
  return out;
}

int regions_of(const Module& model) {
  return count(model.get_method("forward").graph()->block(), fusion::kFusedRegion);
}

// In its regions.
int count_biases(const Module& model) {
  int out = 0;
  for (const Node* node : model.get_method("forward").graph()->block()->nodes()) {
    if (node->kind().toQualString() != std::string(fusion::kFusedRegion)) continue;
    out += count(node->g(torch::jit::attr::Subgraph)->block(), "dslaunch::with_bias");
  }
  return out;
}

Tensors inputs_of(const std::vector<std::vector<int64_t>>& sizes, at::ScalarType dtype) {
  Tensors out;
  for (const auto& size : sizes) out.push_back(at::randn(size, at::kDouble).to(dtype).requires_grad_());
  return out;
}

// Outputs and gradients. `num_regions`: at least so many must have run.
Tensors results(Module& model, const Tensors& inputs, int num_regions = 0) {
  const torchscript::PlainExecution plain;
  const auto given = model.forward({inputs.begin(), inputs.end()});
  Tensors outputs;
  if (given.isTuple()) {
    for (const auto& one : given.toTupleRef().elements()) outputs.push_back(one.toTensor());
  } else {
    outputs.push_back(given.toTensor());
  }
  CHECK(dslaunch::test::count_regions(outputs) >= num_regions);
  at::manual_seed(8);
  Tensors upstream, out = outputs;
  for (const auto& output : outputs)
    upstream.push_back(at::randn(output.sizes(), at::kDouble).to(output.scalar_type()));
  for (const auto& gradient : torch::autograd::grad(outputs, inputs, upstream, std::nullopt, false, true))
    out.push_back(gradient);
  return out;
}

void check_equal(const Tensors& got, const Tensors& expected, double tolerance) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("result " << i);
    REQUIRE(got[i].defined() == expected[i].defined());
    if (!got[i].defined()) continue;
    CHECK(got[i].scalar_type() == expected[i].scalar_type());
    REQUIRE(got[i].sizes() == expected[i].sizes());
    CHECK(at::allclose(got[i].to(at::kDouble), expected[i].to(at::kDouble), tolerance, tolerance));
  }
}

// The model as it was, and with its operators extracted into `num_regions`.
void check_same(const std::string& source, const Tensors& inputs, int num_regions, double tolerance = 1e-10) {
  auto plain = module_of(source), fused = module_of(source);
  fuse_regions(fused);
  INFO(fused.get_method("forward").graph()->toString());
  CHECK(regions_of(fused) == num_regions);
  check_equal(results(fused, inputs, num_regions), results(plain, inputs), tolerance);
}

}  // namespace

TEST_CASE("segmenter: usual chains become one region and compute the same, in fp64 and bf16") {
  for (const auto& [name, source, sizes] : examples()) {
    INFO(name);
    at::manual_seed(4);
    const bool is_cast = std::string(source).find("fp32") != std::string::npos;  // loses fp64
    check_same(source, inputs_of(sizes, at::kDouble), 1, is_cast ? 1e-5 : 1e-10);
    check_same(source, inputs_of(sizes, at::kFloat), 1, 1e-4);
    check_same(source, inputs_of(sizes, at::kBFloat16), 1, 0.06);
  }
}

TEST_CASE("segmenter: pieces become slices only where operators of regions alone read them") {
  for (const auto& [cut, rest, cuts] :
       {std::tuple{"chunk(2, -1)", "", 0}, std::tuple{"split(5, -1)", "", 0},
        std::tuple{"split_with_sizes([5, 5], -1)", "", 0},
        std::tuple{"chunk(2, -1)", " + gate.cumsum(-1)", 1},       // read by another operator
        std::tuple{"chunk(2, -1)", " + gate.clone().mul_(2)", 1},  // likewise
        std::tuple{"chunk(2, 1)", "", 1}}) {                       // another dim
    INFO(cut << rest);
    const auto source = std::string("def forward(self, x):\n    gate, up = x.") + cut +
                        "\n    return torch.silu(gate) * up" + rest + "\n";
    auto fused = module_of(source);
    fuse_regions(fused);
    const auto* block = fused.get_method("forward").graph()->block();
    CHECK(count(block, "aten::chunk") + count(block, "aten::split") + count(block, "aten::split_with_sizes") == cuts);
    auto plain = module_of(source);
    const auto inputs = inputs_of({{3, 4, 10}}, at::kDouble);
    check_equal(results(fused, inputs), results(plain, inputs), 1e-12);
  }
}

TEST_CASE("segmenter: every operator that a region may contain makes one") {
  for (const std::string each : {"torch.neg(x)",
                                 "torch.abs(x)",
                                 "torch.exp(x)",
                                 "torch.log(x * x + 0.1)",
                                 "torch.sqrt(x * x + 0.1)",
                                 "torch.rsqrt(x * x + 0.1)",
                                 "torch.reciprocal(x * x + 0.1)",
                                 "torch.sin(x)",
                                 "torch.cos(x)",
                                 "torch.tanh(x)",
                                 "torch.sigmoid(x)",
                                 "torch.erf(x)",
                                 "torch.relu(x)",
                                 "torch.silu(x)",
                                 "torch.gelu(x)",
                                 "torch.gelu(x, approximate=\"tanh\")",
                                 "torch.pow(x, 2)",
                                 "torch.pow(x * x + 0.1, 2.5)",
                                 "torch.rsub(x, 1.0)",
                                 "torch.rsub(x, y)",
                                 "torch.sub(x, y, alpha=0.3)",
                                 "torch.add(x, y, alpha=2)",
                                 "x - y",
                                 "x / (y * y + 0.1)",
                                 "torch.maximum(x, y)",
                                 "torch.minimum(x, y)",
                                 "torch.clamp(x, -1.0, 1.0)",
                                 "torch.clamp_min(x, 0.0)",
                                 "torch.where(x < y, x, y)",
                                 "torch.where(torch.logical_not(x >= y), x, y)",
                                 "x.masked_fill(x > 0.0, 1.0)",
                                 "torch.where(x != y, x, y)",
                                 "torch.where(x <= 0.0, x, y)",
                                 "torch.where(x == y, x, y)",
                                 "x.to(6)",
                                 "x.to(15)",
                                 "x.type_as(y)",
                                 "x.mean([-1], True)",
                                 "x.sum([2], True)",
                                 "x.amax([-1], True)",
                                 "torch.softmax(x, -1)",
                                 "torch.layer_norm(x, [16])",
                                 "x[:, :, 4:12]",
                                 "x[:, :, -4:]",
                                 "torch.cat([x, y, x], -1)",
                                 "torch.dropout(x, 0.0, True)",
                                 "torch.dropout(x, 0.5, False)"}) {
    INFO(each);
    at::manual_seed(6);
    const auto source = "def forward(self, x, y):\n    return torch.mul(" + each + ", 2.0) + 1.0\n";
    check_same(source, inputs_of({{2, 3, 16}, {2, 3, 16}}, at::kDouble), 1,
               each == "x.to(15)" || each == "x.to(6)" ? 1e-2 : 1e-9);
  }
}

TEST_CASE("segmenter: one operator alone stays") {
  auto model = module_of("def forward(self, x, w):\n    return torch.matmul(torch.tanh(x), w)\n");
  CHECK(fuse_regions(model) == 0);
}

TEST_CASE("segmenter: the gradient of a bias before an activation comes from the activation's region") {
  for (const std::string each : {"torch.gelu(torch.linear(x, w.t(), b))", "torch.relu(torch.addmm(b, x[0], w))",
                                 "torch.pow(torch.addmm(b, x.view(-1, 5), w).view(2, 3, 8), 3.0) * 0.3",
                                 "torch.silu(torch.linear(x, w.t(), b)) * torch.linear(x, w.t())",
                                 "torch.layer_norm(torch.dropout(torch.linear(x, w.t(), b), 0.0, True) + b, [8])"}) {
    INFO(each);
    at::manual_seed(3);
    const auto source = "def forward(self, x, w, b):\n    return " + each + "\n";
    const auto inputs = inputs_of({{2, 3, 5}, {5, 8}, {8}}, at::kDouble);
    check_same(source, inputs, 1, 1e-12);
    auto fused = module_of(source);
    fuse_regions(fused);
    CHECK(count_biases(fused) == 1);
    const at::NoGradGuard none;
    CHECK(at::allclose(fused.forward({inputs[0], inputs[1], inputs[2]}).toTensor(),
                       module_of(source).forward({inputs[0], inputs[1], inputs[2]}).toTensor()));
  }
}

TEST_CASE("segmenter: a bias whose GEMM's gradient no region computes stays in the GEMM") {
  for (const std::string each :
       {"torch.linear(x, w.t(), b) + 1.0", "torch.addmm(b, x[0], w, beta=2)",
        "torch.gelu(torch.linear(x, w.t(), b)) + torch.linear(x, w.t(), b).matmul(w.t())[0, 0, 0]",
        "torch.matmul(torch.linear(x, w.t(), b), w.t())"}) {
    INFO(each);
    at::manual_seed(3);
    const auto source = "def forward(self, x, w, b):\n    return " + each + "\n";
    auto fused = module_of(source);
    fuse_regions(fused);
    const auto graph = fused.get_method("forward").graph();
    CHECK(count(graph->block(), "dslaunch::with_bias") == 0);
    CHECK(count(graph->block(), "aten::detach") == count_biases(fused));
    check_same(source, inputs_of({{2, 3, 5}, {5, 8}, {8}}, at::kDouble), count_biases(fused), 1e-12);
  }
}

TEST_CASE("segmenter: a bias whose columns a view divides is summed without a region") {
  at::manual_seed(3);
  const char* source =
      "def forward(self, x, w, b):\n    return torch.gelu(torch.linear(x, w.t(), b).view(2, 3, 2, 4))\n";
  auto plain = module_of(source), fused = module_of(source);
  CHECK(fuse_regions(fused) == 1);
  const auto inputs = inputs_of({{2, 3, 5}, {5, 8}, {8}}, at::kDouble);
  check_equal(results(fused, inputs), results(plain, inputs), 1e-12);
}

TEST_CASE("segmenter: an operator between two others separates them") {
  const char* source = R"(
def forward(self, x, w):
    a = torch.tanh(x) * 2.0
    b = torch.matmul(a, w)
    return torch.sigmoid(b) + a
)";
  at::manual_seed(1);
  check_same(source, inputs_of({{4, 4}, {4, 4}}, at::kDouble), 2);
}

TEST_CASE("segmenter: independent operators between others move out of the way") {
  const char* source = R"(
def forward(self, x, w):
    a = torch.tanh(x)
    b = torch.matmul(w, w)
    c = a * 2.0
    d = torch.matmul(c, b)
    e = c + a
    return d, e
)";
  at::manual_seed(1);
  check_same(source, inputs_of({{4, 4}, {4, 4}}, at::kDouble), 1);
}

TEST_CASE("segmenter: nothing moves across a write in place, and what is written to stays out") {
  const char* source = R"(
def forward(self, x):
    a = torch.tanh(x) * 2.0
    b = a[:, :2]
    b.mul_(3.0)
    return torch.sigmoid(a) + a
)";
  at::manual_seed(1);
  auto plain = module_of(source), fused = module_of(source);
  fuse_regions(fused);
  INFO(fused.get_method("forward").graph()->toString());
  const at::Tensor x = at::randn({3, 4}, at::kDouble).requires_grad_();
  check_equal(results(fused, {x}), results(plain, {x}), 1e-12);
}

TEST_CASE("segmenter: regions in branches and loops") {
  const char* source = R"(
def forward(self, x, w):
    for i in range(3):
        if bool(x.sum() > 0.0):
            x = torch.tanh(x) * w
        else:
            x = torch.sigmoid(x) - w
    return x
)";
  at::manual_seed(1);
  check_same(source, inputs_of({{4, 4}, {4, 4}}, at::kDouble), 2);
}

TEST_CASE("segmenter: calls of other modules are inlined, their parameters are read where they were") {
  const auto make = [] {
    Module inner("Inner");
    at::manual_seed(2);
    inner.register_parameter("weight", at::randn({4}, at::kDouble), false);
    inner.define("def forward(self, x):\n    return torch.tanh(x * self.weight)\n");
    Module outer("Outer");
    outer.register_module("inner", inner);
    outer.define("def forward(self, x):\n    return self.inner.forward(x + 1.0) * 2.0\n");
    return outer;
  };
  auto plain = make(), fused = make();
  CHECK(fuse_regions(fused) == 1);
  const at::Tensor x = at::randn({3, 4}, at::kDouble).requires_grad_();
  check_equal(results(fused, {x}), results(plain, {x}), 1e-12);
  fused.attr("inner").toModule().setattr("weight", at::ones({4}, at::kDouble));
  plain.attr("inner").toModule().setattr("weight", at::ones({4}, at::kDouble));
  check_equal(results(fused, {x}), results(plain, {x}), 1e-12);
}

TEST_CASE("segmenter: results of other sizes are regions of their own, in one extracted group") {
  const char* source = R"(
def forward(self, q, k, cos):
    c = cos * 2.0 + 1.0
    return (torch.tanh(q) * c).sum() + (torch.tanh(k) * c).sum()
)";
  at::manual_seed(1);
  check_same(source, inputs_of({{2, 4, 3, 6}, {2, 2, 3, 6}, {1, 1, 3, 6}}, at::kDouble), 1);
}

TEST_CASE("segmenter: sizes, dtypes and modes may change from call to call") {
  auto plain = module_of(kSwiGlu), fused = module_of(kSwiGlu);
  fuse_regions(fused);
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    for (const int64_t rows : {1, 5, 0, 3}) {
      const auto inputs = inputs_of({{rows, 6}, {rows, 6}}, dtype);
      check_equal(results(fused, inputs), results(plain, inputs), 1e-5);
      const at::NoGradGuard none;
      CHECK(at::allclose(fused.forward({inputs[0], inputs[1]}).toTensor(),
                         plain.forward({inputs[0], inputs[1]}).toTensor()));
    }
  }
  // one dim, integers: as PyTorch computes them
  const at::Tensor line = at::randn({6});
  CHECK(at::allclose(fused.forward({line, line}).toTensor(), at::silu(line) * line));
}

TEST_CASE("segmenter: gradients of gradients") {
  auto plain = module_of(kResidualNorm), fused = module_of(kResidualNorm);
  fuse_regions(fused);
  at::manual_seed(1);
  const auto inputs = inputs_of({{3, 8}, {3, 8}, {8}}, at::kDouble);
  const auto second = [&](Module& model) {
    const torchscript::PlainExecution off;
    const auto outputs = model.forward({inputs[0], inputs[1], inputs[2]}).toTuple();
    const at::Tensor loss =
        outputs->elements()[0].toTensor().pow(3).sum() + outputs->elements()[1].toTensor().pow(3).sum();
    const auto first = torch::autograd::grad({loss}, inputs, {}, true, /*create_graph=*/true);
    const at::Tensor penalty = first[0].pow(2).sum() + first[2].pow(2).sum();
    return torch::autograd::grad({penalty}, inputs);
  };
  check_equal(second(fused), second(plain), 1e-8);
}

TEST_CASE("segmenter: gradients of gradients reach a bias whose gradient a region sums") {
  for (const std::string each :
       {"torch.gelu(torch.linear(x, w.t(), b))", "torch.pow(torch.addmm(b, x, w), 3.0) * 0.3"}) {
    INFO(each);
    const auto source = "def forward(self, x, w, b):\n    return " + each + "\n";
    auto plain = module_of(source), fused = module_of(source);
    fuse_regions(fused);
    CHECK(count_biases(fused) == 1);
    at::manual_seed(2);
    const auto inputs = inputs_of({{3, 5}, {5, 8}, {8}}, at::kDouble);
    const auto second = [&](Module& model, size_t of) {
      const torchscript::PlainExecution off;
      const at::Tensor loss = model.forward({inputs[0], inputs[1], inputs[2]}).toTensor().pow(3).sum();
      const auto first = torch::autograd::grad({loss}, inputs, {}, true, /*create_graph=*/true);
      return torch::autograd::grad({first[of].pow(2).sum()}, inputs);
    };
    for (const size_t of : {0, 1, 2}) check_equal(second(fused, of), second(plain, of), 1e-9);
  }
}

TEST_CASE("segmenter: results that only some of the loss depends on") {
  const char* source = R"(
def forward(self, x, y):
    a = torch.tanh(x) * y
    b = torch.exp(x) + y
    return a, b
)";
  auto plain = module_of(source), fused = module_of(source);
  fuse_regions(fused);
  const auto inputs = inputs_of({{3, 8}, {3, 8}}, at::kDouble);
  const auto half = [&](Module& model) {
    const torchscript::PlainExecution off;
    const auto outputs = model.forward({inputs[0], inputs[1]}).toTuple();
    return torch::autograd::grad({outputs->elements()[1].toTensor().sum()}, inputs);
  };
  check_equal(half(fused), half(plain), 1e-12);
}

namespace {

// The operators of transformers' LlamaDecoderLayer as a trace has them; GPT2Block's with the chain of gelu_new.
constexpr char kLlamaLayer[] = R"(
def norm(self, x, weight):
    h = x.to(6)
    h = h * torch.rsqrt(h.pow(2).mean([-1], True) + 1e-6)
    return weight * h.to(x.dtype)

def rotate(self, x, cos, sin):
    half = x.size(3) // 2
    return x * cos + torch.cat([-x[:, :, :, half:], x[:, :, :, :half]], -1) * sin

def layer(self, x, norm_1, norm_2, square, wide, back, cos, sin):
    h = self.norm(x, norm_1)
    q = torch.matmul(h, square).view(2, 5, 2, 4).transpose(1, 2)
    k = torch.matmul(h, square).view(2, 5, 2, 4).transpose(1, 2)
    v = torch.matmul(h, square).view(2, 5, 2, 4).transpose(1, 2)
    q = self.rotate(q, cos.unsqueeze(1), sin.unsqueeze(1))
    k = self.rotate(k, cos.unsqueeze(1), sin.unsqueeze(1))
    a = torch.scaled_dot_product_attention(q, k, v, None, 0.0, True)
    x = x + torch.matmul(a.transpose(1, 2).reshape(2, 5, 8), square)
    h = self.norm(x, norm_2)
    return x + torch.matmul(torch.silu(torch.matmul(h, wide)) * torch.matmul(h, wide), back)

def forward(self, x, norm_1, norm_2, square, wide, back, cos, sin):
    x = self.layer(x, norm_1, norm_2, square, wide, back, cos, sin)
    x = self.layer(x, norm_1, norm_2, square, wide, back, cos, sin)
    return self.norm(x, norm_1)
)";

constexpr char kGpt2Block[] = R"(
def block(self, x, weight, bias, square):
    h = torch.layer_norm(x, [8], weight, bias, 1e-5)
    x = torch.dropout(torch.matmul(h, square), 0.0, True) + x
    h = torch.layer_norm(x, [8], weight, bias, 1e-5)
    h = torch.matmul(h, square)
    h = h * 0.5 * (torch.tanh((h + torch.pow(h, 3.0) * 0.044715) * 0.7978845608) + 1.0)
    return x + torch.dropout(torch.matmul(h, square), 0.0, True)

def forward(self, x, weight, bias, square):
    x = self.block(x, weight, bias, square)
    x = self.block(x, weight, bias, square)
    return torch.layer_norm(x, [8], weight, bias, 1e-5)
)";

}  // namespace

TEST_CASE("segmenter: layers of Llama and GPT-2 have the expected regions") {
  at::manual_seed(1);
  // Each layer: the norm with the addition before it, twice; two rotations; SwiGLU. And the last norm.
  check_same(kLlamaLayer, inputs_of({{2, 5, 8}, {8}, {8}, {8, 8}, {8, 16}, {16, 8}, {1, 5, 4}, {1, 5, 4}}, at::kFloat),
             11, 1e-4);
  // Each block: the norm with the addition before it, twice, but for the first norm, which is one operator; GELU.
  check_same(kGpt2Block, inputs_of({{3, 8}, {8}, {8}, {8, 8}}, at::kDouble), 6, 1e-9);
}

TEST_CASE("partition: groups stay convex") {
  // 0 -> 1 -> 3, 0 -> 2 -> 3; 2 cannot join
  const std::vector<PartitionItem> diamond{{{}, 0}, {{0}, 0}, {{0}, {}}, {{1, 2}, 0}};
  const auto group = partition(diamond);
  CHECK(group[1] == group[0]);
  CHECK(group[3] != group[0]);
  CHECK(group[2] == 2);
  // without the outsider all join
  const std::vector<PartitionItem> all{{{}, 0}, {{0}, 0}, {{0}, 0}, {{1, 2}, 0}};
  CHECK(partition(all) == std::vector<size_t>{0, 0, 0, 0});
  // of another kind
  const std::vector<PartitionItem> kinds{{{}, 0}, {{0}, 1}, {{1}, 1}};
  CHECK(partition(kinds) == std::vector<size_t>{0, 1, 1});
}
