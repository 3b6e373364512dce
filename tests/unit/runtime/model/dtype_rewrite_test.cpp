// A trace's graphs after they were adapted to a half-precision run: what they compute, and which graphs stay untouched.
#include "runtime/model/dtypes/dtype_plan.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>

#include <catch2/catch.hpp>
#include <stdexcept>
#include <string>

#include "runtime/model/torchscript/forward_errors.hpp"
#include "runtime/model/torchscript/plain_execution.hpp"

using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::dtypes;
using namespace dslaunch::runtime::model::torchscript;
using torch::jit::Module;

namespace {

// A module as torch.jit.trace leaves it.
Module traced(const char* name, const std::string& forward, at::ScalarType dtype) {
  Module module(name);
  module.register_attribute("training", c10::BoolType::get(), true);
  module.register_attribute("_is_full_backward_hook", c10::OptionalType::create(c10::BoolType::get()), c10::IValue());
  at::manual_seed(3);
  module.register_parameter("w", at::randn({4, 4}).to(dtype), false);
  module.register_parameter("v", at::randn({4}).to(dtype), false);
  module.register_buffer("frequencies", at::full({4}, 0.3));
  module.define(forward);
  return module;
}

constexpr char kNormAndRotation[] = R"(
def forward(self, x):
    x1 = torch.linear(x, self.w)
    up = torch.to(x1, 6)
    normed = torch.mul(up, torch.rsqrt(torch.add(torch.mean(torch.pow(up, 2), [-1], True), 1.0e-6)))
    back = torch.mul(self.v, torch.to(normed, 6))
    angles = torch.mul(torch.to(torch.arange(4), 6), self.frequencies)
    turned = torch.mul(torch.linear(back, self.w), torch.to(torch.cos(angles), 6))
    return torch.linear(torch.add(up, turned), self.w)
)";

at::Tensor run(Module& module, const at::Tensor& x) {
  const PlainExecution plain;
  return module.forward({x}).toTensor();
}

void cast_parameters(Module& module, at::ScalarType dtype) {
  for (const auto& parameter : module.named_parameters()) module.setattr(parameter.name, parameter.value.to(dtype));
}

}  // namespace

TEST_CASE("a trace in fp32 computes in bf16 what its Python code does", "[runtime][dtype_rewrite]") {
  auto module = traced("Net", kNormAndRotation, at::kFloat);
  const auto rewrite = follow_dtype(module, at::kBFloat16);
  CHECK(rewrite.notes == std::vector<std::string>{"fp32 export: 2 casts follow bf16"});
  CHECK(rewrite.fp32_buffers == std::set<std::string>{"frequencies"});
  cast_parameters(module, at::kBFloat16);
  const at::Tensor x = at::randn({3, 4}).to(at::kBFloat16);

  const at::Tensor w = module.attr("w").toTensor(), v = module.attr("v").toTensor();
  const at::Tensor x1 = at::linear(x, w), up = x1.to(at::kFloat);
  const at::Tensor normed = up * (up.pow(2).mean({-1}, true) + 1e-6).rsqrt();
  const at::Tensor cos = (at::arange(4).to(at::kFloat) * module.attr("frequencies").toTensor()).cos();
  const at::Tensor turned = at::linear(v * normed.to(at::kBFloat16), w) * cos.to(at::kBFloat16);
  const at::Tensor found = run(module, x);
  CHECK(found.scalar_type() == at::kBFloat16);
  CHECK(at::equal(found, at::linear(x1 + turned, w)));
}

TEST_CASE("a norm without a recorded cast back is cast where its weight is applied, and only there",
          "[runtime][dtype_rewrite]") {
  const std::string forward = R"(
def forward(self, x):
    x1 = torch.linear(x, self.w)
    up = torch.to(x1, 6)
    normed = torch.mul(up, torch.rsqrt(torch.mean(torch.pow(up, 2), [-1], True)))
    return torch.linear(torch.mul(self.v, normed), self.w)
)";
  auto module = traced("Net", forward, at::kFloat);
  const auto rewrite = follow_dtype(module, at::kBFloat16);
  CHECK(rewrite.notes == std::vector<std::string>{
                             "fp32 export: 0 casts follow bf16, 1 inputs of operators are cast where types differ"});
  cast_parameters(module, at::kBFloat16);
  const at::Tensor x = at::randn({3, 4}).to(at::kBFloat16);
  const at::Tensor w = module.attr("w").toTensor(), v = module.attr("v").toTensor();
  const at::Tensor up = at::linear(x, w).to(at::kFloat);
  const at::Tensor normed = up * up.pow(2).mean({-1}, true).rsqrt();
  CHECK(at::equal(run(module, x), at::linear(v * normed.to(at::kBFloat16), w)));
}

TEST_CASE("a mask that is computed in fp32 takes the type of what it is added to", "[runtime][dtype_rewrite]") {
  const std::string forward = R"(
def forward(self, x):
    mask = torch.mul(torch.rsub(torch.to(torch.gt(x, 0), 6), 1.0), -1.001)
    x1 = torch.linear(x, self.w)
    return torch.linear(torch.add(x1, mask), self.w)
)";
  auto module = traced("Net", forward, at::kFloat);
  follow_dtype(module, at::kBFloat16);
  cast_parameters(module, at::kBFloat16);
  const at::Tensor x = at::randn({3, 4}).to(at::kBFloat16);
  const at::Tensor w = module.attr("w").toTensor();
  const at::Tensor mask = (1.0 - x.gt(0).to(at::kFloat)) * -1.001;
  CHECK(at::equal(run(module, x), at::linear(at::linear(x, w) + mask.to(at::kBFloat16), w)));
}

TEST_CASE("parameters of several types, or none, leave a trace as it is", "[runtime][dtype_rewrite]") {
  auto mixed = traced("Net", kNormAndRotation, at::kFloat);
  mixed.setattr("v", mixed.attr("v").toTensor().to(at::kHalf));
  const auto before = mixed.get_method("forward").graph()->toString(false);
  CHECK(follow_dtype(mixed, at::kBFloat16).notes.empty());
  CHECK(mixed.get_method("forward").graph()->toString(false) == before);
  const auto wide = traced("Net", kNormAndRotation, at::kDouble);
  CHECK(follow_dtype(wide, at::kBFloat16).notes.empty());
}

TEST_CASE("a trace in fp16 follows bf16, with what that costs", "[runtime][dtype_rewrite]") {
  const std::string forward =
      "def forward(self, x):\n    return torch.linear(torch.to(torch.linear(x, self.w), 5), self.w)\n";
  auto module = traced("Net", forward, at::kHalf);
  const auto rewrite = follow_dtype(module, at::kBFloat16);
  CHECK(rewrite.notes ==
        std::vector<std::string>{"fp16 export: 1 casts follow bf16. the fp32 masters start from weights of "
                                 "11 bits"});
  cast_parameters(module, at::kBFloat16);
  CHECK(run(module, at::randn({3, 4}).to(at::kBFloat16)).scalar_type() == at::kBFloat16);
}

TEST_CASE("a trace in the run's type and a script stay as they are", "[runtime][dtype_rewrite]") {
  const auto text_after = [](const Module& module, at::ScalarType dtype) {
    const std::string before = module.get_method("forward").graph()->toString(false);
    CHECK(follow_dtype(module, dtype).notes.empty());
    return module.get_method("forward").graph()->toString(false) == before;
  };
  const auto in = [](at::ScalarType dtype) { return traced("Net", kNormAndRotation, dtype); };
  CHECK(text_after(in(at::kBFloat16), at::kBFloat16));
  CHECK(text_after(in(at::kFloat), at::kFloat));
  const auto script = [] {
    Module module("Net");
    module.register_parameter("w", at::randn({4, 4}), false);
    module.define("def forward(self, x):\n    return torch.linear(torch.linear(x, self.w).to(6), self.w)\n");
    return module;
  };
  CHECK(text_after(script(), at::kHalf));
}

TEST_CASE("a trace in bf16 follows fp16, with a warning", "[runtime][dtype_rewrite]") {
  const std::string forward = R"(
def forward(self, x):
    x1 = torch.linear(x, self.w)
    weights = torch.to(torch.softmax(torch.to(x1, 6), -1), 15)
    return torch.linear(weights, self.w)
)";
  auto module = traced("Net", forward, at::kBFloat16);
  const auto rewrite = follow_dtype(module, at::kHalf);
  REQUIRE(rewrite.notes.size() == 1);
  CHECK(rewrite.notes[0].find("bf16 export: 1 casts follow fp16. fp16 ends at 65504") == 0);
  cast_parameters(module, at::kHalf);
  CHECK(run(module, at::randn({3, 4}).to(at::kHalf)).scalar_type() == at::kHalf);
}

TEST_CASE("an operator whose operands' types differ is named with its module", "[runtime][dtype_rewrite]") {
  auto inner = traced("Inner", "def forward(self, x):\n    return torch.linear(torch.zeros_like(x, dtype=6), self.w)\n",
                      at::kBFloat16);
  Module outer("Outer");
  outer.register_module("block", inner);
  outer.define("def forward(self, x):\n    return self.block.forward(x)\n");
  const PlainExecution plain;
  std::string found;
  try {
    outer.forward({at::ones({2, 4}, at::kBFloat16)});
  } catch (const std::exception& error) {
    found = describe_type_mismatch(outer, error);
  }
  CHECK(found == "block: linear takes operands of one type, and got fp32 and bf16");
  CHECK(describe_type_mismatch(outer, std::runtime_error("index out of range in self")).empty());
}
