// Attention recognizes kept masks by their values, and takes heads before the model repeats them.
#include "runtime/model/layers/attention.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "graph_fixtures.hpp"
#include "runtime/model/layers/attention_mask.hpp"

using namespace dslaunch::test;
using namespace dslaunch::runtime::model;
using constants::classify_mask;
using constants::MaskKind;
using torch::jit::Module;

namespace {

constexpr size_t kMask = 3, kIsCausal = 5, kGrouped = 7;  // arguments of attention

Module make_model(const std::string& forward) {
  Module model("Net");
  model.register_parameter("scale", at::ones({1}), false);
  model.define(forward);
  return model;
}

struct Found {
  std::vector<std::vector<c10::IValue>> calls;
  std::vector<at::Tensor> numbers;  // output and gradients
};

Found run(Module& model, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& more = {}) {
  std::vector<at::Tensor> leaves;
  std::vector<c10::IValue> arguments;
  for (const auto& input : inputs) {
    leaves.push_back(input.detach().clone().requires_grad_());
    arguments.emplace_back(leaves.back());
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  OperatorCalls calls;
  const at::Tensor out = model.forward(arguments).toTensor();
  Found found{calls.attention(), torch::autograd::grad({out.square().sum()}, leaves)};
  found.numbers.push_back(out.detach());
  return found;
}

// Runs twice after the passes; the numbers are those without them up to the order of additions.
Found check(const std::string& forward, const std::vector<at::Tensor>& inputs,
            const std::vector<at::Tensor>& more = {}) {
  auto before = make_model(forward), after = make_model(forward);
  run_all_passes(after);
  const Found expected = run(before, inputs, more);
  Found found;
  for (int call = 0; call < 2; ++call) {
    found = run(after, inputs, more);
    for (size_t i = 0; i < expected.numbers.size(); ++i) {
      CHECK(at::allclose(found.numbers[i], expected.numbers[i], 1e-5, 1e-5));
    }
  }
  return found;
}

std::vector<at::Tensor> heads(int64_t queries, int64_t keys, int64_t positions = 7) {
  torch::manual_seed(1);
  return {at::randn({2, queries, positions, 8}), at::randn({2, keys, positions, 8}),
          at::randn({2, keys, positions, 8})};
}

std::string with_mask(const std::string& mask) {
  return R"(
    def forward(self, q, k, v):
        n = q.size(2)
        rows = torch.arange(n).unsqueeze(1)
        columns = torch.arange(n).unsqueeze(0)
)" + mask +
         R"(
        return torch.scaled_dot_product_attention(q, k, v, mask, 0.0, False)
  )";
}

}  // namespace

TEST_CASE("masks are classified by their values", "[model][attention_masks]") {
  const at::Tensor causal = at::ones({5, 5}, at::kBool).tril();
  CHECK(classify_mask(causal) == MaskKind::kCausal);
  CHECK(classify_mask(causal.expand({2, 3, 5, 5})) == MaskKind::kCausal);
  CHECK(classify_mask(at::ones({2, 1, 4, 6}, at::kBool)) == MaskKind::kFull);
  CHECK(classify_mask(at::ones({4, 6}, at::kBool).tril()) == MaskKind::kOther);
  auto padded = causal.expand({2, 1, 5, 5}).clone();
  padded[1][0][4][1] = false;
  CHECK(classify_mask(padded) == MaskKind::kOther);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const double lowest = type == at::kHalf    ? -65504.0
                          : type == at::kFloat ? std::numeric_limits<float>::lowest()
                                               : -3.3895313892515355e38;
    for (const double never : {-std::numeric_limits<double>::infinity(), lowest}) {
      const at::Tensor added = at::zeros({5, 5}, type).masked_fill(causal.logical_not(), never);
      CHECK(classify_mask(added) == MaskKind::kCausal);
    }
    CHECK(classify_mask(at::zeros({5, 5}, type)) == MaskKind::kFull);
    CHECK(classify_mask(at::zeros({5, 5}, type).masked_fill(causal.logical_not(), -100)) == MaskKind::kOther);
  }
}

TEST_CASE("a causal mask becomes is_causal", "[model][attention_masks]") {
  for (const char* mask : {"        mask = (columns <= rows).expand(q.size(0), 1, n, n)",
                           "        mask = torch.zeros([n, n]).masked_fill(columns > rows, -3.4028234663852886e38)"}) {
    const auto found = check(with_mask(mask), heads(4, 4));
    REQUIRE(found.calls.size() == 1);
    CHECK(found.calls[0][kMask].isNone());
    CHECK(found.calls[0][kIsCausal].toBool());
  }
}

TEST_CASE("a mask that allows everything is left out", "[model][attention_masks]") {
  const auto found = check(with_mask("        mask = columns >= rows * 0"), heads(4, 4));
  CHECK(found.calls[0][kMask].isNone());
  CHECK_FALSE(found.calls[0][kIsCausal].toBool());
}

TEST_CASE("a row that allows everything stands for all rows", "[model][attention_masks]") {
  const auto found = check(with_mask("        mask = columns >= 0"), heads(4, 4));
  CHECK(found.calls[0][kMask].isNone());
}

TEST_CASE("other masks stay as they are", "[model][attention_masks]") {
  const auto window = check(with_mask("        mask = (columns <= rows) & (columns > rows - 3)"), heads(4, 4));
  CHECK(window.calls[0][kMask].isTensor());
  // A mask of one row stands for all rows.
  const auto row = check(with_mask("        mask = (columns < n - 2).expand(1, n)"), heads(4, 4));
  CHECK(row.calls[0][kMask].isTensor());
}

TEST_CASE("a padding mask from the inputs keeps its meaning", "[model][attention_masks]") {
  const std::string forward = R"(
    def forward(self, q, k, v, allowed):
        n = q.size(2)
        causal = torch.arange(n).unsqueeze(0) <= torch.arange(n).unsqueeze(1)
        mask = causal & allowed.unsqueeze(1).unsqueeze(1)
        return torch.scaled_dot_product_attention(q, k, v, mask, 0.0, False)
  )";
  auto allowed = at::ones({2, 7}, at::kBool);
  allowed[1][0] = true;
  allowed[1].slice(0, 5, 7).fill_(false);
  const auto found = check(forward, heads(4, 4), {allowed});
  CHECK(found.calls[0][kMask].isTensor());
}

TEST_CASE("a padding mask that is all of the mask stays as small as it is", "[model][attention_masks]") {
  // As transformers makes it: combined with one that allows everything, and expanded.
  const std::string forward = R"(
    def forward(self, q, k, v, allowed):
        n = q.size(2)
        rows = torch.arange(n).unsqueeze(1)
        mask = ((rows >= -1) & (rows >= 0)) & allowed.unsqueeze(1).unsqueeze(1)
        return torch.scaled_dot_product_attention(q, k, v, mask.expand(q.size(0), 1, n, n), 0.0, False)
  )";
  auto allowed = at::ones({2, 7}, at::kBool);
  allowed[1].slice(0, 5, 7).fill_(false);
  const auto found = check(forward, heads(4, 4), {allowed});
  CHECK(found.calls[0][kMask].toTensor().sizes() == at::IntArrayRef({2, 1, 1, 7}));
}

TEST_CASE("a mask that is written to after it was combined is a tensor of its own", "[model][attention_masks]") {
  const std::string forward = R"(
    def forward(self, q, k, v, allowed):
        n = q.size(2)
        mask = (torch.arange(n).unsqueeze(1) >= 0) & allowed.unsqueeze(1).unsqueeze(1)
        mask[:, :, 0, 0] = True
        out = torch.scaled_dot_product_attention(q, k, v, mask, 0.0, False)
        return out * allowed.sum()
  )";
  auto allowed = at::ones({2, 7}, at::kBool);
  allowed[1].slice(0, 0, 2).fill_(false);
  const auto found = check(forward, heads(4, 4), {allowed});
  CHECK(found.calls[0][kMask].toTensor().size(2) == 7);
  CHECK_FALSE(allowed[1][0].item<bool>());
}

TEST_CASE("masks in another type keep what they forbid, and finite numbers finite", "[model][attention_masks]") {
  const double lowest = std::numeric_limits<float>::lowest(), never = -std::numeric_limits<double>::infinity();
  const at::Tensor mask = at::tensor({0.0F, 1.5F, static_cast<float>(lowest), static_cast<float>(never)});
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor fitted = layers::fit_mask(mask, type);
    REQUIRE(fitted.scalar_type() == type);
    CHECK(fitted[0].item<float>() == 0);
    CHECK(fitted[1].item<float>() == 1.5F);
    CHECK(std::isfinite(fitted[2].item<float>()));
    CHECK(fitted[2].item<float>() <= -65504.0F);
    CHECK(fitted[3].item<double>() == never);
  }
  CHECK(layers::fit_mask(mask, at::kFloat).is_same(mask));
  CHECK(layers::fit_mask(mask.to(at::kBFloat16), at::kFloat).scalar_type() == at::kFloat);
  CHECK(layers::fit_mask(at::ones({3, 3}, at::kBool), at::kHalf).scalar_type() == at::kBool);
}

TEST_CASE("a mask's keys are next to each other, and its repeated rows are one", "[model][attention_masks]") {
  const at::Tensor bias = at::randn({5, 7, 3}).permute({2, 0, 1}).unsqueeze(0);
  const at::Tensor fitted = layers::fit_mask(bias, at::kFloat);
  CHECK(fitted.stride(-1) == 1);
  CHECK(at::equal(fitted, bias));
  const at::Tensor row = at::rand({2, 1, 1, 7});
  CHECK(layers::without_repetitions(row.expand({2, 4, 5, 7})).sizes() == row.sizes());
  CHECK(layers::without_repetitions(bias).is_same(bias));
  // One number for all keys stays: kernels want keys next to each other.
  CHECK(layers::without_repetitions(at::rand({2, 1, 5, 1}).expand({2, 1, 5, 7})).size(-1) == 7);
}

TEST_CASE("layers share a converted mask until its values change", "[model][attention_masks]") {
  layers::ConvertedMasks masks;
  int num_conversions = 0;
  const auto convert = [&](const at::Tensor& mask) {
    num_conversions += 1;
    return layers::as_numbers(mask, at::kBFloat16, -1.0);
  };
  at::Tensor mask = at::ones({3, 3}, at::kBool).tril();
  const at::Tensor first = masks.get(mask, 0, convert);
  CHECK(at::equal(first.to(at::kFloat), mask.to(at::kFloat) - 1));
  CHECK(masks.get(mask.detach(), 0, convert).is_same(first));
  CHECK(num_conversions == 1);
  CHECK_FALSE(masks.get(mask, 1, convert).is_same(first));      // another kind
  CHECK_FALSE(masks.get(mask.t(), 0, convert).is_same(first));  // another view
  mask.fill_(true);
  CHECK(masks.get(mask, 0, convert).sum().item<float>() == 0);
  CHECK(num_conversions == 4);
  mask = at::zeros({3, 3}, at::kBool);  // maybe at the same address
  CHECK(masks.get(mask, 0, convert).sum().item<float>() == -9);
  const at::Tensor learned = at::zeros({3}).requires_grad_();
  const auto cast = [](const at::Tensor& numbers) { return numbers.to(at::kDouble); };
  CHECK_FALSE(masks.get(learned, 0, cast).is_same(masks.get(learned, 0, cast)));
}

TEST_CASE("a kept mask that was written to is looked at again", "[model][attention_masks]") {
  constants::KnownMasks masks;
  at::Tensor mask = at::ones({4, 4}, at::kBool);
  CHECK(masks.kind_of(mask, true) == MaskKind::kOther);  // not known
  masks.add(mask);
  CHECK(masks.kind_of(mask, false) == MaskKind::kOther);  // not looked at
  CHECK(masks.kind_of(mask, true) == MaskKind::kFull);
  CHECK(masks.kind_of(mask.detach(), false) == MaskKind::kFull);  // the same memory
  CHECK(masks.kind_of(mask.slice(0, 0, 3), true) == MaskKind::kFull);
  mask.tril_();
  CHECK(masks.kind_of(mask, true) == MaskKind::kOther);
}

TEST_CASE("heads that the model repeats are taken before", "[model][grouped_attention]") {
  for (const char* form : {R"(
    def repeated(self, x):
        return x[:, :, None].expand(x.size(0), x.size(1), 3, x.size(2), x.size(3)).reshape(x.size(0), x.size(1) * 3, x.size(2), x.size(3))
)",
                           R"(
    def repeated(self, x):
        return x.repeat_interleave(3, dim=1)
)"}) {
    const std::string body = std::string(form).substr(std::string(form).find("return") + 7);
    const auto inlined = [&](const std::string& name) {
      std::string out = body;
      for (size_t at = out.find("x"); at != std::string::npos; at = out.find("x", at + 1)) {
        if (out.compare(at, 2, "x.") == 0 || out.compare(at, 2, "x[") == 0) out.replace(at, 1, name);
      }
      return out;
    };
    for (const int64_t positions : {1, 7, 33}) {
      const auto found = check(
          "\n    def forward(self, q, k, v):\n        keys = " + inlined("k") + "        values = " + inlined("v") +
              "        out = torch.scaled_dot_product_attention(q, keys, values, None, 0.0, True)\n"
              "        return out * values.size(3)\n",
          heads(6, 2, positions));
      REQUIRE(found.calls.size() == 1);
      CHECK(found.calls[0][1].toTensor().size(1) == 2);
      CHECK(found.calls[0][2].toTensor().size(1) == 2);
      CHECK(found.calls[0][kGrouped].toBool());
    }
  }
}

TEST_CASE("heads are repeated where no fused kernel takes them in groups", "[model][grouped_attention]") {
  const auto found = check(R"(
    def forward(self, q, k, v):
        keys, values = k.repeat_interleave(3, dim=1), v.repeat_interleave(3, dim=1)
        return torch.scaled_dot_product_attention(q, keys, values, None, 0.0, True)
  )",
                           {heads(6, 2)[0].to(at::kDouble), heads(6, 2)[1].to(at::kDouble),
                            at::randn({2, 2, 7, 5}, at::kDouble)});  // other widths
  REQUIRE(found.calls.size() == 1);
  CHECK(found.calls[0][1].toTensor().size(1) == 6);
  CHECK_FALSE(found.calls[0][kGrouped].toBool());
}

TEST_CASE("sizes of repeated heads do not keep the repetition", "[model][grouped_attention]") {
  auto model = make_model(R"(
    def forward(self, q, k, v):
        keys, values = k.repeat_interleave(3, dim=1), v.repeat_interleave(3, dim=1)
        return torch.scaled_dot_product_attention(q, keys, values) * keys.size(2) + values.size(3)
  )");
  run_all_passes(model);
  CHECK(kinds_in_forward(model)["aten::repeat_interleave"] == 0);
}

TEST_CASE("grouped heads follow autocast", "[model][grouped_attention]") {
  const std::string forward = R"(
    def forward(self, q, k, v):
        keys, values = k.repeat_interleave(3, dim=1), v.repeat_interleave(3, dim=1)
        return torch.scaled_dot_product_attention(q, keys, values, None, 0.0, True)
  )";
  auto before = make_model(forward), after = make_model(forward);
  run_all_passes(after);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const auto expected = run(before, heads(6, 2)), found = run(after, heads(6, 2));
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  REQUIRE_FALSE(found.calls.empty());
  CHECK(found.calls.front()[1].toTensor().scalar_type() == at::kBFloat16);
  CHECK(found.calls.front()[1].toTensor().size(1) == 2);
  CHECK(found.calls.front()[kGrouped].toBool());
  for (size_t i = 0; i < expected.numbers.size(); ++i) {
    CHECK(found.numbers[i].scalar_type() == expected.numbers[i].scalar_type());
    CHECK(at::allclose(found.numbers[i], expected.numbers[i], 0.02, 0.05));
  }
}

TEST_CASE("a repetition of positions, or one that differs, stays", "[model][grouped_attention]") {
  // Without heads, dim 1 is the positions.
  const auto found = check(R"(
    def forward(self, q, k, v):
        keys, values = k.repeat_interleave(3, dim=1), v.repeat_interleave(3, dim=1)
        return torch.scaled_dot_product_attention(q, keys, values)
  )",
                           {at::randn({2, 6, 8}), at::randn({2, 4, 8}), at::randn({2, 4, 8})});
  CHECK(found.calls[0][1].toTensor().size(1) == 12);
  check(R"(
    def forward(self, q, k, v):
        keys = k[:, :, None].expand(k.size(0), k.size(1), 3, k.size(2), k.size(3)).reshape(k.size(0), k.size(1) * 3, k.size(2), k.size(3))
        values = v.repeat(1, 3, 1, 1)
        return torch.scaled_dot_product_attention(q, keys, values)
  )",
        heads(6, 2));
}

TEST_CASE("attention's rewrites have switches", "[model][attention_masks][grouped_attention]") {
  auto model = make_model(with_mask("        mask = columns <= rows"));
  run_all_passes(model, {.attention_masks = false});
  CHECK(kinds_in_forward(model)["aten::scaled_dot_product_attention"] == 1);
  auto grouped = make_model(R"(
    def forward(self, q, k, v):
        return torch.scaled_dot_product_attention(q, k.repeat_interleave(3, dim=1), v.repeat_interleave(3, dim=1))
  )");
  run_all_passes(grouped, {.grouped_attention = false});
  CHECK(kinds_in_forward(grouped)["aten::repeat_interleave"] == 2);
}
