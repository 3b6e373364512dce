// Operators of ours take the place of PyTorch's, and on the CPU every number stays what it was.
#include "runtime/model/torchscript/graph_passes.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/frontend/sugared_value.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/common_subexpression_elimination.h>
#include <torch/script.h>

#include <catch2/catch.hpp>
#include <map>

#include "runtime/model/layers/gemm_handle.hpp"
#include "runtime/model/torchscript/units/unit_forwards.hpp"

using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::passes;
using namespace dslaunch::runtime::model::torchscript;
using torch::jit::Module;
using torch::jit::Node;

namespace {

// torch.nn.functional.cross_entropy as a scripted model has it: functions that call each other.
constexpr char kFunctional[] = R"(
def get_enum(reduction: str) -> int:
    ret = -1
    if reduction == "mean":
        ret = 1
    elif reduction == "sum":
        ret = 2
    return ret

def cross_entropy(input, target, ignore_index: int, reduction: str):
    return torch.cross_entropy_loss(input, target, None, get_enum(reduction), ignore_index, 0.0)
)";

class Functional : public torch::jit::Resolver {
 public:
  explicit Functional(const Module& model) : unit_(model._ivalue()->compilation_unit()) {
    unit_->define(c10::QualifiedName("__torch__.functional"), kFunctional, torch::jit::nativeResolver(), nullptr);
  }
  std::shared_ptr<torch::jit::SugaredValue> resolveValue(const std::string& name, torch::jit::GraphFunction& method,
                                                         const torch::jit::SourceRange& range) override {
    if (name != "cross_entropy") return torch::jit::nativeResolver()->resolveValue(name, method, range);
    auto* function = unit_->find_function(c10::QualifiedName("__torch__.functional.cross_entropy"));
    return std::make_shared<torch::jit::FunctionValue>(function);
  }

 private:
  std::shared_ptr<torch::jit::CompilationUnit> unit_;
};

Module make_model(const std::string& forward) {
  Module model("Net");
  model.define(forward, std::make_shared<Functional>(model));
  return model;
}

struct Numbers {
  at::Tensor loss, gradient;
};

Numbers numbers(Module& model, at::ScalarType type) {
  torch::manual_seed(5);
  const at::Tensor logits = at::randn({2, 6, 7}).to(type).requires_grad_();
  const at::Tensor labels = at::tensor({1, 2, -100, 3, 0, 6, 6, 5, 4, -100, 2, 1}, at::kLong).view({2, 6});
  const at::Tensor loss = model.forward({logits * 1, labels}).toTensor();
  return {loss.detach(), torch::autograd::grad({loss.to(at::kFloat)}, {logits}).at(0)};
}

// All nodes of forward by kind, blocks included; of cross entropy with what it says of its logits.
std::map<std::string, int> kinds(const Module& model) {
  std::map<std::string, int> out;
  const auto graph = model.get_method("forward").graph();
  std::vector<const torch::jit::Block*> blocks{graph->block()};
  while (!blocks.empty()) {
    const auto* block = blocks.back();
    blocks.pop_back();
    for (const Node* node : block->nodes()) {
      std::string kind = node->kind().toQualString();
      if (kind == "dslaunch::cross_entropy") {
        kind += torch::jit::toIValue(node->input(6))->toBool() ? " in float" : " as they are";
      }
      out[kind] += 1;
      for (const auto* inner : node->blocks()) blocks.push_back(inner);
    }
  }
  return out;
}

void run_graph_passes(const Module& model, const dslaunch::config::Kernels& kernels = {}) {
  PassContext context{.module = model, .options = {kernels}};
  run_passes(graph_passes(), PassNeeds::kGraphs, PassTarget::kModel, context);
}

// Runs the passes; numbers before and after are the same bits in fp32 and in bf16.
std::map<std::string, int> after_passes(const std::string& forward) {
  std::map<at::ScalarType, Numbers> before;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    auto model = make_model(forward);
    before[type] = numbers(model, type);
  }
  auto model = make_model(forward);
  run_graph_passes(model);
  for (const auto& [type, expected] : before) {
    const auto got = numbers(model, type);
    CHECK(got.loss.equal(expected.loss));
    CHECK(got.loss.scalar_type() == expected.loss.scalar_type());
    CHECK(got.gradient.equal(expected.gradient));
  }
  return kinds(model);
}

}  // namespace

TEST_CASE("a cast of logits before a function of cross entropy becomes part of the operator", "[model][graph_passes]") {
  auto found = after_passes(R"(
    def forward(self, logits, labels):
        return cross_entropy(logits.view(-1, logits.size(-1)).float(), labels.reshape(-1), -100, "mean")
  )");
  CHECK(found["dslaunch::cross_entropy in float"] == 1);
  CHECK(found["aten::to"] == 0);
  CHECK(found["aten::cross_entropy_loss"] == 0);
}

TEST_CASE("the cast may come before views and slices, whose sizes are asked for", "[model][graph_passes]") {
  auto found = after_passes(R"(
    def forward(self, logits, labels):
        wide = logits.to(6)
        shifted = wide[:, :-1].contiguous()
        return cross_entropy(shifted.view(-1, shifted.size(-1)), labels[:, 1:].reshape(-1), -100, "sum")
  )");
  CHECK(found["dslaunch::cross_entropy in float"] == 1);
  CHECK(found["aten::to"] == 0);
}

TEST_CASE("a cast whose elements are used elsewhere stays", "[model][graph_passes]") {
  auto found = after_passes(R"(
    def forward(self, logits, labels):
        wide = logits.float()
        loss = torch.cross_entropy_loss(wide.view(-1, 7), labels.view(-1))
        return loss + wide.square().mean()
  )");
  CHECK(found["dslaunch::cross_entropy as they are"] == 1);
  CHECK(found["aten::to"] == 1);
}

TEST_CASE("a cast stays where something may write to its result before the loss", "[model][graph_passes]") {
  auto found = after_passes(R"(
    def forward(self, logits, labels):
        wide = logits.float()
        flat = wide.view(-1, 7)
        wide.mul_(2)
        return torch.cross_entropy_loss(flat, labels.view(-1))
  )");
  CHECK(found["dslaunch::cross_entropy as they are"] == 1);
  CHECK(found["aten::to"] == 1);
}

TEST_CASE("other casts and losses stay what they are", "[model][graph_passes]") {
  auto found = after_passes(R"(
    def forward(self, logits, labels):
        direct = torch.cross_entropy_loss(logits.view(-1, 7), labels.view(-1))
        wide = torch.cross_entropy_loss(logits.double().view(-1, 7), labels.view(-1))
        return direct + wide.to(direct.dtype) + torch.log_softmax(logits.float(), -1).mean().to(direct.dtype)
  )");
  CHECK(found["dslaunch::cross_entropy as they are"] == 2);
  CHECK(found["dslaunch::cross_entropy in float"] == 0);
}

TEST_CASE("layer norms and linear layers are replaced unless they are switched off", "[model][graph_passes]") {
  const std::string forward = R"(
    def forward(self, logits, labels):
        bias = torch.ones([7], dtype=logits.dtype)
        weight = torch.ones([7, 7], dtype=logits.dtype)
        x = torch.layer_norm(logits, [7], bias, None, 0.001)
        x = torch.layer_norm(x, [6, 7])
        x = torch.linear(x, weight) if x.dim() > 5 else torch.linear(x, weight, bias)
        return torch.cross_entropy_loss(x.view(-1, 7), labels.view(-1))
  )";
  auto found = after_passes(forward);
  CHECK(found["dslaunch::layer_norm"] == 2);
  CHECK(found["dslaunch::linear"] == 2);
  CHECK(found["aten::layer_norm"] + found["aten::linear"] == 0);

  auto model = make_model(forward);
  run_graph_passes(model,
                   {.cross_entropy = false, .layer_norm = false, .bias_gradient = false, .weight_gradient = false});
  auto kept = kinds(model);
  CHECK(kept["aten::layer_norm"] == 2);
  CHECK(kept["aten::linear"] == 2);
  CHECK(kept["aten::cross_entropy_loss"] == 1);
}

TEST_CASE("GEMMs with a weight that may be a parameter are replaced", "[model][graph_passes]") {
  const auto after = [](const dslaunch::config::Kernels& kernels) {
    Module model("Net");
    model.register_parameter("w", at::ones({4, 4}), false);
    model.register_parameter("b", at::ones({4}), false);
    model.define(R"(
      def forward(self, x):
          x = torch.linear(torch.linear(x, self.w, self.b), self.w)
          x = torch.matmul(torch.matmul(x, self.w.t()), self.w.transpose(0, 1))
          x = torch.addmm(self.b, torch.addmm(self.b, x, self.w), self.w.t())
          scores = torch.matmul(x, x.t()) + torch.matmul(x, (x * 2).t())
          return torch.linear(x, self.w * 2) + torch.addmm(self.b, x, x.t()[:, :4]) + scores.sum()
    )");
    run_graph_passes(model, kernels);
    return kinds(model);
  };
  auto found = after({});
  CHECK(found["dslaunch::linear"] == 3);  // one for its bias
  CHECK(found["dslaunch::matmul"] == 2);
  CHECK(found["dslaunch::addmm"] == 3);
  CHECK(found["aten::matmul"] == 2);
  found = after({.bias_gradient = false});
  CHECK(found["dslaunch::linear"] == 2);
  CHECK(found["dslaunch::matmul"] == 2);
  CHECK(found["dslaunch::addmm"] == 2);
  found = after({.bias_gradient = false, .weight_gradient = false});
  CHECK(found["aten::linear"] == 3);
  CHECK(found["aten::matmul"] == 4);
  CHECK(found["aten::addmm"] == 3);
}

TEST_CASE("two models of a process differ in who chooses their GEMMs' algorithms", "[model][graph_passes]") {
  const auto gemms = c10::make_intrusive<device::GemmCache>("");
  const auto make = [](const device::GemmCachePtr& of_model) {
    Module net("Net");
    net.register_parameter("weight", at::linspace(-1, 1, 12).view({3, 4}), /*is_buffer=*/false);
    // One node for both GEMMs, once LibTorch has compared them.
    net.define("def forward(self, x):\n    return torch.linear(x, self.weight) + torch.linear(x, self.weight)\n");
    PassContext context{.module = net, .options = {.gemms = of_model}};
    run_passes(graph_passes(), PassNeeds::kGraphs, PassTarget::kModel, context);
    run_passes(graph_passes(), PassNeeds::kDevice, PassTarget::kModel, context);
    torch::jit::EliminateCommonSubexpression(net.get_method("forward").graph());
    return net;
  };
  Module tuned = make(gemms), plain = make({});
  for (const auto& [model, expected] : {std::pair(&tuned, gemms), std::pair(&plain, device::GemmCachePtr())}) {
    const auto graph = model->get_method("forward").graph();
    int count = 0;
    for (const Node* node : graph->nodes()) {
      if (node->kind().toQualString() != std::string("dslaunch::linear")) continue;
      count += 1;
      CHECK(layers::gemms_of(node).cache == expected);
    }
    CHECK(count == 1);
    CHECK_FALSE(graph->toString().empty());
  }
  const at::Tensor x = at::linspace(-2, 2, 8).view({2, 4});
  CHECK(tuned.forward({x}).toTensor().equal(plain.forward({x}).toTensor()));
}

TEST_CASE("graphs with operators of ours can be printed", "[model][graph_passes]") {
  Module net("Net");
  net.define(R"(
    def forward(self, q, padding):
        n = q.size(2)
        mask = torch.arange(n).unsqueeze(1) >= torch.arange(n).unsqueeze(0)
        return torch.scaled_dot_product_attention(q, q, q, mask & padding, 0.0, False)
  )");
  PassContext context{.module = net};
  run_passes(graph_passes(), PassNeeds::kGraphs, PassTarget::kModel, context);
  run_passes(graph_passes(), PassNeeds::kDevice, PassTarget::kModel, context);
  const std::string printed = net.get_method("forward").graph()->toString();
  for (const char* kind : {"dslaunch::attention", "dslaunch::combine_masks", "dslaunch::keep_constants"}) {
    CHECK_THAT(printed, Catch::Contains(kind));
  }
  units::replace_forward(*net.type(), c10::make_intrusive<units::UnitForward>(*net.type()));
  CHECK_THAT(net.get_method("forward").graph()->toString(), Catch::Contains("dslaunch::run_unit"));
}

TEST_CASE("the table of passes stands in an order that each pass can work with", "[model][graph_passes]") {
  CHECK(fault_of_order(graph_passes()).empty());
  const auto moved = [](std::string_view name, std::string_view before) {
    auto rows = graph_passes();
    const auto row_of = [&](std::string_view wanted) {
      return std::find_if(rows.begin(), rows.end(), [&](const GraphPass& row) { return row.name == wanted; });
    };
    const GraphPass row = *row_of(name);
    rows.erase(row_of(name));
    rows.insert(row_of(before), row);
    return fault_of_order(rows);
  };
  CHECK(moved("size_arithmetic", "compute_dtype") ==
        "compute_dtype reads the graphs as the file has them, which size_arithmetic has ended");
  CHECK(moved("fused_regions", "attention_masks") ==
        "attention_masks reads operators outside regions, which fused_regions has ended");
  CHECK(moved("chunked_cross_entropy", "fused_cross_entropy") ==
        "chunked_cross_entropy reads our losses, which no pass before it makes");
  CHECK(moved("bias_gradients", "chunked_cross_entropy") ==
        "chunked_cross_entropy reads PyTorch's GEMMs, which bias_gradients has ended");
  CHECK(moved("numbers", "mask_minima") == "numbers reads fitted constants, which no pass before it makes");
  CHECK(moved("device_constants", "training_flag") ==
        "training_flag comes before units are intercepted, and stands behind that");
  CHECK(moved("recomputed_outputs", "residual_gradients") ==
        "recomputed_outputs reads residual gradients, which no pass before it makes");
}

TEST_CASE("passes in an impossible order do not run", "[model][graph_passes]") {
  auto rows = graph_passes();
  std::reverse(rows.begin(), rows.end());
  const Module model = make_model("def forward(self, x):\n    return x\n");
  PassContext context{.module = model};
  CHECK_THROWS_WITH(run_passes(rows, PassNeeds::kGraphs, PassTarget::kModel, context),
                    Catch::Contains("graph passes: "));
}
