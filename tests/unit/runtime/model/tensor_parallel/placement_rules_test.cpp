// Each rule of placements: an operator on the parts that tensor ranks hold gives what it gives on the whole, forward
// and backward, for numbers of ranks that divide the sizes and others.
#include <string>
#include <utility>
#include <vector>

#include "support/script_models.hpp"
#include "tensor_ranks.hpp"

using namespace dslaunch;
using test::random_values;
using test::random_weight;
using test::TensorRanks;

namespace {

struct RuleModel {
  std::string name;
  std::vector<std::pair<std::string, std::vector<int64_t>>> parameters;
  std::string forward;                                      // of x: [2, 5, 24]
  std::vector<std::pair<std::string, std::string>> splits;  // expected: by parameter
};

// What positions are split of: the operators read x when it is a sum over the ranks, and norms and residuals lie
// between.
constexpr char kSum[] =
    "  x = x + torch.linear(torch.relu(torch.linear(x, self.first)), self.second)\n"
    "  x = torch.layer_norm(x, [24], self.norm) * 0.5\n";

torch::jit::Module make(const RuleModel& model, bool of_positions) {
  test::ScriptModule from{"Net", "def forward(self, x):\n" + (of_positions ? kSum + model.forward : model.forward)};
  if (of_positions) {
    from.parameters = {{"first", random_weight({32, 24}, 11)},
                       {"second", random_weight({24, 32}, 12)},
                       {"norm", random_weight({24}, 13)}};
  }
  for (size_t i = 0; i < model.parameters.size(); ++i) {
    const auto& [name, shape] = model.parameters[i];
    from.parameters.emplace_back(name, random_weight(shape, 20 + i));
  }
  return test::compile(from);
}

using Splits = std::vector<std::pair<std::string, std::string>>;
const Splits kPair{{"a", "column"}, {"b", "row"}};
const Splits kNone{{"a", ""}};
const Splits kColumn{{"a", "column"}};

const std::vector<RuleModel>& models() {
  // Heads are 4 wide; 6 of them.
  static const std::vector<RuleModel> all{
      {"mlp with biases",
       {{"a", {40, 24}}, {"ab", {40}}, {"b", {24, 40}}, {"bb", {24}}},
       "  return torch.linear(torch.gelu(torch.linear(x, self.a, self.ab)), self.b, self.bb) + x\n",
       kPair},
      {"transposed weights",
       {{"a", {24, 40}}, {"ab", {40}}, {"b", {40, 24}}, {"bb", {24}}},
       "  y = torch.addmm(self.ab, x.view(-1, x.size(-1)), self.a)\n"
       "  y = torch.relu(y.view(x.size(0), x.size(1), 40))\n"
       "  y = torch.addmm(self.bb, y.view(-1, y.size(2)), self.b)\n"
       "  return y.view(x.size(0), x.size(1), 24)\n",
       kPair},
      {"GEMMs with transposed parameters",
       {{"a", {40, 24}}, {"b", {24, 40}}},
       "  return torch.matmul(torch.tanh(torch.matmul(x, self.a.t())), self.b.transpose(0, 1))\n",
       kPair},
      {"gate and up in one weight",
       {{"a", {80, 24}}, {"b", {24, 40}}},
       "  gate, up = torch.linear(x, self.a).chunk(2, -1)\n"
       "  return torch.linear(torch.silu(gate) * up, self.b)\n",
       kPair},
      {"a gate of one weight and an up of another",
       {{"a", {40, 24}}, {"c", {40, 24}}, {"b", {24, 40}}},
       "  return torch.linear(torch.sigmoid(torch.linear(x, self.a)) * torch.linear(x, self.c), self.b)\n",
       {{"a", "column"}, {"c", "column"}, {"b", "row"}}},
      {"attention over fused thirds",
       {{"a", {72, 24}}, {"ab", {72}}, {"b", {24, 24}}, {"bb", {24}}},
       "  q, k, v = torch.linear(x, self.a, self.ab).split(24, 2)\n"
       "  q = q.view(x.size(0), x.size(1), 6, 4).transpose(1, 2)\n"
       "  k = k.view(x.size(0), x.size(1), -1, 4).transpose(1, 2)\n"
       "  v = v.view([x.size(0), x.size(1), 6, 4]).permute([0, 2, 1, 3])\n"
       "  y = torch.scaled_dot_product_attention(q, k, v, None, 0.0, True)\n"
       "  y = y.transpose(1, 2).contiguous().view(x.size(0), x.size(1), 24)\n"
       "  return torch.linear(y, self.b, self.bb)\n",
       kPair},
      {"attention over slices of one weight, three queries to a key",
       {{"a", {72, 24}}, {"b", {24, 36}}},
       "  y = torch.linear(x, self.a)\n"
       "  q = y[:, :, :36].reshape(x.size(0), x.size(1), 9, 4).transpose(1, 2)\n"
       "  k = y[:, :, 36:-18].reshape(x.size(0), x.size(1), 3, 6)[..., :4].transpose(1, 2)\n"
       "  v = y[:, :, 54:].reshape(x.size(0), x.size(1), 3, 6)[..., 2:].transpose(1, 2)\n"
       "  y = torch.scaled_dot_product_attention(q, k, v, None, 0.0, True, enable_gqa=True)\n"
       "  return torch.linear(y.transpose(1, 2).flatten(2, 3), self.b)\n",
       {}},
      {"attention with two keys for six queries",
       {{"q", {24, 24}}, {"k", {8, 24}}, {"v", {8, 24}}, {"b", {24, 24}}},
       "  q = torch.linear(x, self.q).unflatten(2, [6, 4]).transpose(1, 2)\n"
       "  k = torch.linear(x, self.k).unflatten(2, [-1, 4]).transpose(1, 2)\n"
       "  v = torch.linear(x, self.v).view(x.size(0), x.size(1), 2, 4).transpose(1, 2)\n"
       "  y = torch.scaled_dot_product_attention(q, k, v, None, 0.0, True, enable_gqa=True)\n"
       "  return torch.linear(y.transpose(1, 2).flatten(2), self.b)\n",
       {{"q", "column"}, {"b", "row"}}},
      {"repeated keys",
       {{"q", {24, 24}}, {"k", {8, 24}}, {"v", {8, 24}}, {"b", {24, 24}}},
       "  q = torch.linear(x, self.q).view(x.size(0), x.size(1), 6, 4).transpose(1, 2)\n"
       "  k = torch.linear(x, self.k).view(x.size(0), x.size(1), 2, 4).transpose(1, 2)\n"
       "  v = torch.linear(x, self.v).view(x.size(0), x.size(1), 2, 4).transpose(1, 2)\n"
       "  k = k[:, :, None].expand(x.size(0), 2, 3, x.size(1), 4).reshape(x.size(0), 6, x.size(1), 4)\n"
       "  v = v.repeat_interleave(3, 1)\n"
       "  scores = torch.matmul(q, k.transpose(2, 3)) / (q.size(3) ** 0.5)\n"
       "  y = torch.matmul(torch.softmax(scores, -1), v).transpose(1, 2).contiguous()\n"
       "  return torch.linear(y.reshape(x.size(0), x.size(1), -1), self.b)\n",
       {}},
      {"heads with q, k and v inside, and a norm of each",
       {{"a", {72, 24}}, {"w", {4}}, {"b", {24, 24}}},
       "  y = torch.linear(x, self.a).view(x.size(0), x.size(1), 6, 12).transpose(1, 2)\n"
       "  q, k, v = y.chunk(3, 3)\n"
       "  q = q * torch.rsqrt(q.pow(2).mean([-1], True) + 0.1) * self.w\n"
       "  k = torch.layer_norm(k, [4], self.w)\n"
       "  k = torch.cat([-k[..., 2:], k[..., :2]], -1)\n"
       "  y = torch.scaled_dot_product_attention(q, k, v)\n"
       "  return torch.linear(y.transpose(1, 2).flatten(2), self.b)\n",
       kPair},
      {"q, k and v as a dim, with a factor of each head",
       {{"a", {72, 24}}, {"w", {6, 1, 1}}, {"b", {24, 24}}},
       "  y = torch.linear(x, self.a).view(x.size(0), x.size(1), 3, 6, 4)\n"
       "  q = y.select(2, 0).transpose(1, 2)\n"
       "  k = y[:, :, 1].transpose(1, 2)\n"
       "  v = y.unbind(2)[2].transpose(1, 2)\n"
       "  scores = torch.matmul(q, k.transpose(-1, -2)) * self.w\n"
       "  y = torch.matmul(torch.softmax(scores, -1), v)\n"
       "  return torch.linear(y.transpose(1, 2).flatten(2), self.b)\n",
       kPair},
      {"a mask for each head, from a table",
       {{"a", {72, 24}}, {"t", {5, 6}}, {"b", {24, 24}}},
       "  q, k, v = torch.linear(x, self.a).split([24, 24, 24], -1)\n"
       "  mask = self.t.unsqueeze(0).expand(5, 5, 6).permute(2, 0, 1).unsqueeze(0)\n"
       "  q = q.view(x.size(0), x.size(1), 6, 4).transpose(1, 2)\n"
       "  k = k.view(x.size(0), x.size(1), 6, 4).transpose(1, 2)\n"
       "  v = v.view(x.size(0), x.size(1), 6, 4).transpose(1, 2)\n"
       "  y = torch.scaled_dot_product_attention(q, k, v, mask)\n"
       "  return torch.linear(y.transpose(1, 2).flatten(2), self.b)\n",
       kPair},
      {"a norm over the split dim by a mean",
       {{"a", {40, 24}}, {"w", {40}}, {"b", {24, 40}}},
       "  y = torch.linear(x, self.a)\n"
       "  y = y * torch.rsqrt(y.pow(2).mean([-1], True) + 0.1) * self.w\n"
       "  return torch.linear(y, self.b) + torch.linear(x * 2, self.a).sum(-1, True)\n",
       kPair},
      {"two sums over the ranks in one",
       {{"a", {40, 24}}, {"b", {24, 40}}, {"c", {40, 24}}, {"d", {24, 40}}},
       "  one = torch.linear(torch.relu(torch.linear(x, self.a)), self.b)\n"
       "  other = torch.linear(torch.tanh(torch.linear(x, self.c)), self.d)\n"
       "  return x + (one * 0.5 - other).transpose(0, 1).transpose(0, 1)\n",
       {{"a", "column"}, {"b", "row"}, {"c", "column"}, {"d", "row"}}},
      {"adapters beside a column and a row",
       {{"a", {40, 24}}, {"b", {24, 40}}, {"a1", {4, 24}}, {"a2", {40, 4}}, {"b1", {4, 40}}, {"b2", {24, 4}}},
       "  y = torch.relu(torch.linear(x, self.a) + torch.linear(torch.linear(x, self.a1), self.a2) * 2)\n"
       "  return torch.linear(y, self.b) + torch.linear(torch.linear(y, self.b1), self.b2) * 2 + x\n",
       {{"a", "column"}, {"b", "row"}, {"a1", ""}, {"a2", "column"}, {"b1", "row"}}},
      {"sizes of a split dim stay whole",
       {{"a", {40, 24}}, {"b", {24, 40}}},
       "  y = torch.linear(x, self.a)\n"
       "  scale = torch.arange(y.size(2), dtype=x.dtype) / y.size()[2]\n"
       "  return torch.linear(torch.stack([y * scale, y], 0).sum([0]), self.b)\n",
       kPair},
      {"activations in place",
       {{"a", {40, 24}}, {"b", {24, 40}}},
       "  return torch.linear(torch.relu_(torch.linear(x, self.a)), self.b)\n",
       kPair},
      {"masks of the split value",
       {{"a", {40, 24}}, {"b", {24, 40}}},
       "  y = torch.linear(x, self.a)\n"
       "  y = torch.where(y > 0, y, torch.zeros_like(y)).masked_fill(torch.isnan(y), 0.0)\n"
       "  y = torch.max(y, torch.tensor(-0.5))\n"
       "  return torch.linear(torch.tril(y.view(2, 5, 40, 1).permute(0, 2, 1, 3)).squeeze(3).transpose(1, 2), "
       "self.b)\n",
       kPair},
      {"experts, of whose width no rank has an even share",
       {{"a", {2, 24, 72}}, {"b", {2, 72, 24}}},
       "  ends = torch.tensor([4, 10], dtype=3)\n"
       "  y = torch._grouped_mm(x.reshape(-1, 24).to(15), self.a.to(15), ends)\n"
       "  y = torch._grouped_mm(torch.silu(y), self.b.to(15), ends)\n"
       "  return y.to(6).view(2, 5, 24)\n",
       kPair},
      {"experts that are too narrow to be split",
       {{"a", {2, 24, 8}}, {"b", {2, 8, 24}}},
       "  ends = torch.tensor([4, 10], dtype=3)\n"
       "  y = torch._grouped_mm(x.reshape(-1, 24).to(15), self.a.to(15), ends)\n"
       "  y = torch._grouped_mm(torch.silu(y), self.b.to(15), ends)\n"
       "  return y.to(6).view(2, 5, 24)\n",
       kNone},
      {"heads of all samples in one dim",
       {{"q", {24, 24}}, {"k", {24, 24}}, {"v", {24, 24}}, {"p", {24, 24}}, {"b", {24, 24}}},
       "  q = torch.linear(x, self.q).view(x.size(0), x.size(1), 6, 4).transpose(1, 2).contiguous().view(-1, "
       "x.size(1), 4)\n"
       "  k = torch.linear(x, self.k).view(x.size(0), x.size(1), 6, 4).transpose(1, 2)\n"
       "  k = k.reshape(x.size(0) * 6, x.size(1), 4)\n"
       "  v = torch.linear(x, self.v).view(x.size(0), x.size(1), 6, 4).permute(0, 2, 1, 3).flatten(0, 1)\n"
       "  scores = torch.bmm(q, k.transpose(1, 2))\n"
       "  mask = torch.arange(5, dtype=x.dtype).view(1, 5).expand(scores.size(0), 5, 5)\n"
       "  scores = scores + mask * 0.1\n"
       "  far = torch.linear(x[:1], self.p).view(1, 5, 6, 4).transpose(1, 2).reshape(6, 5, 4)\n"
       "  far = torch.bmm(q, far.repeat(scores.size(0) // 6, 1, 1).transpose(1, 2))\n"
       "  indices = (torch.arange(5) * 2 % 5).expand(scores.size(0), scores.size(1), 5)\n"
       "  scores = (scores + torch.gather(far, 2, indices)).view(x.size(0), 6, x.size(1), 5) * 0.5\n"
       "  y = torch.bmm(torch.softmax(scores.view(x.size(0) * 6, x.size(1), 5), -1), v)\n"
       "  y = y.view(x.size(0), 6, x.size(1), 4).transpose(1, 2).reshape(x.size(0), x.size(1), 24)\n"
       "  return torch.linear(y, self.b)\n",
       {{"q", "column"}, {"k", "column"}, {"v", "column"}, {"p", "column"}, {"b", "row"}}},
      {"elements of heads by their indices, and a shape of another value",
       {{"a", {48, 24}}, {"b", {24, 24}}},
       "  y = torch.linear(x, self.a).view(x.size(0), x.size(1), 6, 2, 4)\n"
       "  first, second = y[:, :, :, torch.tensor([-2])], y[:, :, :, torch.tensor([1])]\n"
       "  pairs = torch.stack([-first[..., 1::2], first[..., ::2]], -1).reshape_as(first)\n"
       "  return torch.linear((pairs * second).flatten(2), self.b)\n",
       kPair},
      {"fused queries of several heads with one key and one value, by the offsets of a split",
       {{"a", {32, 24}}, {"ab", {32}}, {"b", {24, 24}}},
       "  q, k, v = torch.linear(x, self.a, self.ab).split([24, 4, 4], 2)\n"
       "  q = q.view(x.size(0), x.size(1), 6, 4).transpose(1, 2)\n"
       "  k = k.view(x.size(0), x.size(1), 1, 4).transpose(1, 2) * 2\n"
       "  v = v.view(x.size(0), x.size(1), 1, 4).transpose(1, 2)\n"
       "  y = torch.scaled_dot_product_attention(q, k, v, None, 0.0, True, enable_gqa=True)\n"
       "  return torch.linear(y.transpose(1, 2).flatten(2), self.b)\n",
       kPair},
      {"fused queries of several heads with one key and one value, as heads of one dim",
       {{"a", {32, 24}}, {"b", {24, 24}}},
       "  y = torch.linear(x, self.a).view(x.size(0), x.size(1), 8, 4)\n"
       "  q = y[:, :, :-2].transpose(1, 2)\n"
       "  k, v = y[:, :, torch.tensor([-2])].transpose(1, 2), y[:, :, torch.tensor([-1])].transpose(1, 2)\n"
       "  y = torch.scaled_dot_product_attention(q, k, v, None, 0.0, True, enable_gqa=True)\n"
       "  return torch.linear(y.transpose(1, 2).flatten(2), self.b)\n",
       kPair},
      {"what goes along the features is gathered",
       {{"a", {40, 24}}, {"w", {40}}},
       "  return torch.layer_norm(torch.linear(x, self.a).cumsum(-1), [40], self.w)\n",
       kColumn},
      {"what an operator that is not known reads is gathered",
       {{"a", {40, 24}}, {"b", {24, 40}}},
       "  y = torch.linear(x, self.a)\n"
       "  return torch.linear(y.cumprod(2) + y, self.b)\n",
       {{"a", "column"}, {"b", "column"}}},
      {"what a branch reads is gathered",
       {{"a", {40, 24}}},
       "  y = torch.linear(x, self.a)\n"
       "  if x.size(0) > 1:\n"
       "    y = y + 1\n"
       "  return y\n",
       kColumn},
      {"a loss with class weights and label smoothing",
       {{"a", {40, 24}}, {"b", {40}}},
       "  labels = torch.arange(10) * 7 % 40\n"
       "  logits = torch.linear(x, self.a, self.b).view(-1, 40)\n"
       "  return torch.cross_entropy_loss(logits, labels, torch.linspace(0.5, 1.5, 40), 1, 14, 0.1)\n",
       kColumn},
      {"no part of what would be gathered for little",
       {{"a", {240, 24}}, {"b", {24, 240}}, {"c", {4, 24}}},
       "  y = torch.linear(torch.relu(torch.linear(x, self.a)), self.b)\n"
       "  chosen = torch.linear(x, self.c).softmax(-1).max(-1, True)[0]\n"
       "  return y * chosen\n",
       {{"a", "column"}, {"b", "row"}, {"c", ""}}},
      {"no part of what would be gathered when it is large",
       {{"a", {40, 24}}},
       "  y = torch.linear(x, self.a)\n"
       "  return (y.unsqueeze(3) * y.unsqueeze(2).detach()).cumprod(2)\n",
       kNone},
      {"no part of what is written in place",
       {{"a", {40, 24}}, {"b", {24, 40}}},
       "  y = torch.linear(x, self.a)\n"
       "  y[:, :, 3] = 0.5\n"
       "  return torch.linear(y, self.b)\n",
       {{"a", ""}, {"b", ""}}},
  };
  return all;
}

}  // namespace

TEST_CASE("an operator on parts gives parts of what it gives on the whole", "[runtime][model][placement]") {
  const int ranks = GENERATE(2, 3, 4);
  const bool own_operators = ranks == 3;
  const bool sequence_parallel = GENERATE(false, true);
  for (const RuleModel& model : models()) {
    INFO(model.name << " on " << ranks << " ranks" << (own_operators ? ", our operators" : "")
                    << (sequence_parallel ? ", along positions" : ""));
    TensorRanks run([&] { return make(model, sequence_parallel); }, ranks, {random_values({2, 5, 24}, 3)},
                    {.runs_passes = own_operators, .sequence_parallel = sequence_parallel});
    for (const auto& gemm : run.report().gemms) {
      UNSCOPED_INFO(gemm.parameter << ": " << gemm.split << " " << gemm.reason);
    }
    for (const auto& note : run.report().notes) UNSCOPED_INFO(note);
    for (const auto& [parameter, split] : model.splits) CHECK(run.split(parameter) == split);
    run.check_equals_whole(model.name.starts_with("experts") ? 0.02 : 1e-5);
  }
}
