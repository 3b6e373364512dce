// What a user reads when a forward fails: the cause, the module it happened in, and what to do.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <caffe2/serialize/inline_container.h>

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "runtime/model/torchscript/file/model_file.hpp"
#include "runtime/model/torchscript/file/script_error.hpp"
#include "runtime/model/torchscript/forward_errors.hpp"
#include "runtime/model/torchscript/forward_values.hpp"
#include "runtime/model/torchscript/plain_execution.hpp"
#include "script_fixtures.hpp"
#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::torchscript;
using torch::jit::Module;

namespace {

std::string mismatch_in(Module model, const at::Tensor& x) {
  const PlainExecution plain;
  try {
    model.forward({x});
  } catch (const std::exception& error) {
    return describe_type_mismatch(model, error);
  }
  return "no error";
}

constexpr char kLinear[] = "def forward(self, x):\n    return torch.linear(x, self.weight)\n";

std::string advice(const std::string& cause, const std::vector<at::Tensor>& inputs = {}, bool is_half_file = false) {
  return forward_advice(cause, inputs, is_half_file, at::kCPU);
}

}  // namespace

TEST_CASE("the operator whose types differ is found through modules, branches and other methods",
          "[runtime][model][forward_errors]") {
  const auto half = at::ones({2, 4}, at::kHalf);
  const auto net = [](const std::string& forward) {
    auto inner = test::make_net("def forward(self, x):\n    return self.layer.forward(x)\n",
                                {{"layer", test::make_layer(kLinear)}});
    Module module("Outer");
    test::add_parameter(module, "weight", {4, 4});
    module.register_module("inner", inner);
    module.define(forward);
    return module;
  };
  const std::string types = "linear takes operands of one type, and got ";
  CHECK_THAT(mismatch_in(net("def forward(self, x):\n    return self.inner.forward(x)\n"), half),
             Catch::StartsWith("inner.layer: " + types));
  CHECK_THAT(
      mismatch_in(
          net("def forward(self, x):\n    if x.dim() > 1:\n        x = torch.linear(x, self.weight)\n    return x\n"),
          half),
      Catch::StartsWith("the model itself: " + types));
  CHECK_THAT(mismatch_in(net("def forward(self, x):\n    return self.rest(x)\ndef rest(self, x):\n    return "
                             "self.inner.layer.forward(x)\n"),
                         half),
             Catch::StartsWith("inner.layer: " + types));
}

TEST_CASE("the operator is found in a function, and in the original graph of a unit",
          "[runtime][model][forward_errors]") {
  const std::string net = R"(
class Net(Module):
  __parameters__ = ["weight", ]
  __buffers__ = []
  weight : Tensor
  def forward(self: __torch__.Net, x: Tensor) -> Tensor:
    return __torch__.functional.apply(x, self.weight, )
)";
  const auto module = test::ImportedClasses::make_net(
      {{"__torch__", net},
       {"__torch__.functional", "def apply(x: Tensor, w: Tensor) -> Tensor:\n  return torch.linear(x, w)\n"}},
      {{"weight", at::ones({4, 4})}});
  CHECK_THAT(mismatch_in(module, at::ones({2, 4}, at::kDouble)),
             Catch::StartsWith("the model itself: linear takes operands of one type, and got "));

  test::ModelRun run(
      test::make_net("def forward(self, x):\n    return self.two.forward(self.one.forward(x).double()).sum()\n",
                     {{"one", test::make_layer(kLinear)}, {"two", test::make_layer(kLinear)}}));
  test::expect_error(ExitCode::kBadInput,
                     {"forward of", "Float[2, 4]", "two: linear takes operands of one type, and got fp64 and fp32",
                      "A trace keeps the dtypes of its export"},
                     [&] {
                       run.forward({at::ones({2, 4})});
                     });
}

TEST_CASE("errors that are not about types, or of an unknown place, are described by their cause alone",
          "[runtime][model][forward_errors]") {
  const auto layer = test::make_layer(kLinear);
  CHECK(mismatch_in(layer, at::ones({2, 5})).empty());
  CHECK(describe_type_mismatch(layer, std::runtime_error("expected Float but found Half")).empty());
  CHECK(describe_type_mismatch(layer, std::runtime_error("File \"a.py\", line 3\n   x + y\n   ~~~~~ <--- HERE\n"
                                                         "RuntimeError: expected Float but found Half"))
            .empty());
}

TEST_CASE("the cause is the line that says what went wrong", "[runtime][model][forward_errors]") {
  const auto cause = [](const std::string& text) { return file::cause_of(std::runtime_error(text)); };
  CHECK(cause("The following operation failed in the TorchScript interpreter.\nTraceback of TorchScript:\n"
              "  File \"x.py\", line 2\n    x + y\n    ~~~ <--- HERE\nRuntimeError: sizes do not match\nmore") ==
        "sizes do not match");
  CHECK(cause("  x\n  ~ <--- HERE\nbuiltins.ValueError: too large") == "ValueError: too large");
  CHECK(cause("a plain error\nwith a second line") == "a plain error");
  CHECK(cause("").empty());
  CHECK(file::cause_of(c10::Error(c10::SourceLocation{"", "", 0}, "short")) == "short");
  CHECK(file::parse_error_in("expected an indent:\n  File \"x.py\", line 2\n  if x\n  ~~~~ <--- HERE\n") ==
        "expected an indent: if x");
  CHECK(file::parse_error_in("no place") == "no place");
}

TEST_CASE("advice follows from the message", "[runtime][model][forward_errors]") {
  const std::vector<std::pair<std::string, std::string>> expected{
      {"\"mul\" not implemented for 'Half'", "train it in fp32 or with torch_autocast"},
      {"Low precision dtypes not supported", "PyTorch does not have this operator in 16 bits"},
      {"forward() Expected a value of type 'int'", "wrap the model in a module whose forward accepts tensors"},
      {"index out of range in self", "An index must be a row of its table"},
      {"Parametrization is not working with scripting", "trace the model"},
      {"arguments don't support automatic differentiation", "A trace loses torch.no_grad()"},
      {"The size of tensor a (3) must match the size of tensor b (4)", "If this is a trace"},
      {"shape '[2]' is invalid for input of size 3", "constants from its example inputs"},
      {"expected scalar type Long but found Float", "save ids and class labels as int64"},
      {"Input type (unsigned char) and bias type (float) should be the same", "pixels) as float32"},
      {"could not create a primitive descriptor for the LSTM", "A trace keeps the dtypes of its export"},
      {"mat1 and mat2 must have the same dtype", "export it in the dtype of this run"},
  };
  for (const auto& [cause, words] : expected) {
    CAPTURE(cause);
    CHECK_THAT(advice(cause), Catch::Contains(words));
  }
  CHECK(advice("something else").empty());
  CHECK_THAT(advice("must have the same dtype", {at::ones({1})}, /*is_half_file=*/true),
             Catch::Contains("set fp16.enabled or bf16.enabled"));
  CHECK_THAT(advice("must have the same dtype", {at::ones({1}, at::kLong)}, true), Catch::Contains("A trace keeps"));
}

TEST_CASE("advice depends on autocast and on whether gradients are on", "[runtime][model][forward_errors]") {
  const std::string no_history = "element 0 of tensors does not require grad and does not have a grad_fn";
  CHECK(advice(no_history).empty());
  {
    const at::NoGradGuard no_grad;
    CHECK_THAT(advice(no_history), Catch::Contains("An evaluation computes without gradients"));
  }
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const auto under_autocast = advice("\"mul\" not implemented for 'BFloat16'");
  at::autocast::set_autocast_enabled(at::kCPU, false);
  CHECK_THAT(under_autocast, Catch::EndsWith(": train it in fp32"));
}

TEST_CASE("a forward's result is its first tensor and the others, a loss by its name",
          "[runtime][model][forward_errors]") {
  const auto a = at::ones({1}), b = at::ones({2});
  const auto of_tensor = unpack_result(a);
  CHECK((of_tensor.first.is_same(a) && of_tensor.others.empty() && !of_tensor.named_loss.defined()));
  CHECK(of_tensor.names.empty());
  const auto of_tuple = unpack_result(c10::ivalue::Tuple::create({c10::IValue(5), c10::IValue(a), c10::IValue(b)}));
  CHECK((of_tuple.first.is_same(a) && of_tuple.others.size() == 1 && !of_tuple.named_loss.defined()));
  CHECK((of_tuple.names == std::vector<std::string>{"1", "2"} && !of_tuple.has_own_names));
  const auto named =
      c10::TupleType::createNamed(c10::QualifiedName("__torch__.Out"), std::vector<std::string>{"logits", "loss"},
                                  std::vector<c10::TypePtr>{c10::TensorType::get(), c10::TensorType::get()});
  const auto of_named = unpack_result(c10::ivalue::Tuple::createNamed({c10::IValue(a), c10::IValue(b)}, named));
  CHECK((of_named.first.is_same(a) && of_named.named_loss.is_same(b) && !of_named.is_dict));
  CHECK((of_named.names == std::vector<std::string>{"logits", "loss"} && of_named.has_own_names));
  c10::List<at::Tensor> list;
  list.push_back(a);
  list.push_back(b);
  CHECK(unpack_result(list).others.size() == 1);
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("logits", a);
  CHECK((unpack_result(dict).first.is_same(a) && !unpack_result(dict).named_loss.defined()));
  dict.insert("loss", b);
  const auto of_dict = unpack_result(dict);
  CHECK((of_dict.is_dict && of_dict.first.is_same(b) && of_dict.named_loss.is_same(b) && of_dict.others.size() == 1));
  CHECK((of_dict.names == std::vector<std::string>{"loss", "logits"} && of_dict.has_own_names));
  test::expect_error(ExitCode::kBadInput, {"forward returned Int, expected a tensor"}, [] { unpack_result(3); });
}

TEST_CASE("files that were prepared for inference are recognised by their code", "[runtime][model][forward_errors]") {
  test::TempDir folder;
  const auto archive = [&](const std::string& record, const std::string& text) {
    const std::string path = folder / "model.pt";
    caffe2::serialize::PyTorchStreamWriter writer(path);
    writer.writeRecord(record, text.data(), text.size());
    writer.writeEndOfFile();
    return path;
  };
  for (const auto& [operators, words] :
       std::vector<std::pair<std::string, std::string>>{{"ops.prepacked.linear_clamp_run", "optimize_for_mobile"},
                                                        {"ops.prim.mkldnn_convolution", "optimize_for_inference"},
                                                        {"ops.mkldnn._linear_pointwise", "was made for inference"},
                                                        {"ops.quantized.linear_dynamic", "is quantized"},
                                                        {"ops.sparse.qlinear", "is quantized"}}) {
    const auto path = archive("code/__torch__/net.py", "def f(x):\n  return " + operators + "(x)\n");
    test::expect_error(ExitCode::kBadInput, {"cannot be trained: it ", words, "torch.jit.script(module).save(PATH)"},
                       [&] { file::refuse_inference_file(path); });
  }
  file::refuse_inference_file(archive("code/__torch__/net.py", "def f(x):\n  return torch.linear(x)\n"));
  file::refuse_inference_file(archive("notes.py", "ops.quantized.linear"));  // not code
  folder.write("damaged.pt", "PK");
  test::expect_error(ExitCode::kBadInput, {"it is damaged"},
                     [&] { file::refuse_inference_file(folder / "damaged.pt"); });
}

TEST_CASE("samples of another size than the export recorded are named, by argument",
          "[runtime][model][forward_errors]") {
  torch::jit::Module net("Net");
  test::add_parameter(net, "head", {6, 2});
  net.define("def forward(self, x, scale):\n    return (torch.matmul(x, self.head) * scale).sum()\n");
  const test::TempDir folder;
  net.save(folder / "net.pt", {{dslaunch::runtime::kModelMetadataName,
                                R"({"format": 1, "inputs": [{"name": "x", "dtype": "float32", "shape": [6]}]})"}});
  const auto model = load_script_model(folder / "net.pt", {});
  test::GatheredUnits parameters(*model);
  model->runnable->set_unit_parameters(&parameters);
  const auto answer_to = [&](const at::Tensor& x) {
    return test::message_of(ExitCode::kBadInput, folder.path(), [&] { model->runnable->forward({x, at::ones({3})}); });
  };
  CHECK_THAT(
      answer_to(at::ones({4, 9})),
      Catch::StartsWith("forward of 'DIR/net.pt' failed on inputs Float[4, 9], Float[3]: argument 'x' has samples "
                        "of the size [9], and the model file records [6]: mat1 and mat2"));
  CHECK_THAT(answer_to(at::ones({4, 6})), !Catch::Contains("records"));  // what is wrong then is the other argument
}
