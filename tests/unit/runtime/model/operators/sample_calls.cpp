#include "sample_calls.hpp"

#include <torch/csrc/jit/ir/irparser.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/jit.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>
#include <random>
#include <sstream>
#include <tuple>
#include <unordered_map>

#include "runtime/model/dtypes/dtype_plan.hpp"
#include "runtime/model/layers/cross_entropy.hpp"
#include "runtime/model/layers/layer_norm.hpp"
#include "runtime/model/layers/linear.hpp"
#include "runtime/model/operators/operator_table.hpp"
#include "runtime/model/stages/value_kinds.hpp"

namespace dslaunch::test {
namespace {

using namespace runtime::model::operators;

// Links the files that register our operators.
[[gnu::used]] const auto kRegistering =
    std::tuple(&runtime::model::dtypes::follow_dtype, &runtime::model::layers::fuse_cross_entropy,
               &runtime::model::layers::fuse_layer_norm, &runtime::model::layers::take_weight_gradients,
               &runtime::model::stages::infer_sizes);

struct Sample {
  const char* names;
  const char* expression;  // $: the operator's name
};

const Sample kSamples[] = {
    {"add sub mul div floor_divide remainder fmod minimum maximum eq ne lt le gt ge", "torch.$(x, y)"},
    {"dist cdist cosine_similarity allclose equal isin", "torch.$(x, y)"},
    {"mse_loss l1_loss smooth_l1_loss huber_loss kl_div", "torch.$(x, y)"},
    {"view_as reshape_as expand_as type_as copy", "torch.$(x, y)"},
    {"pow", "torch.pow(p, 1.5)"},
    {"lerp triplet_margin_loss", "torch.$(x, y, p)"},
    {"neg abs sign floor ceil round trunc sin cos tanh sigmoid erf exp exp2 expm1 square", "torch.$(x)"},
    {"relu silu gelu elu leaky_relu relu6 log_sigmoid isnan isinf isfinite", "torch.$(x)"},
    {"sort mode argmax argmin argsort prod nansum nanmean var std var_mean std_mean norm linalg_norm", "torch.$(x)"},
    {"linalg_vector_norm diff clone contiguous detach alias lift_fresh lift flatten squeeze rot90", "torch.$(x)"},
    {"unbind tril triu zeros_like ones_like empty_like rand_like zero", "torch.$(x)"},
    {"size dim numel is_complex is_floating_point stride", "torch.$(x)"},
    {"reciprocal log sqrt rsqrt log2 log10 log1p erfinv", "torch.$(p)"},
    {"clamp", "torch.clamp(x, -0.5, 0.5)"},
    {"clamp_min clamp_max", "torch.$(x, 0.2)"},
    {"logical_not nonzero nonzero_numpy any all", "torch.$(m)"},
    {"logical_and logical_or logical_xor bitwise_and bitwise_or", "torch.$(m, o)"},
    {"bitwise_not one_hot", "torch.$(i)"},
    {"__and__", "m & o"},
    {"__or__", "m | o"},
    {"__xor__", "m ^ o"},
    {"where", "torch.where(m, x, y)"},
    {"masked_fill", "torch.masked_fill(x, m, 2.0)"},

    {"linear", "torch.linear(x, w, n)"},
    {"matmul", "torch.matmul(x, b)"},
    {"mm", "torch.$(a, b)"},
    {"linalg_multi_dot chain_matmul", "torch.$([a, b])"},
    {"bmm", "torch.bmm(x, c)"},
    {"addmm", "torch.addmm(n, a, b)"},
    {"baddbmm addbmm", "torch.$(n, x, c)"},
    {"outer", "torch.outer(v, n)"},
    {"addr", "torch.addr(n, v, n)"},
    {"einsum", "torch.einsum('ij,jk->ik', [a, b])"},
    {"mv", "torch.mv(a, v)"},
    {"addmv", "torch.addmv(e, a, v)"},
    {"dot inner", "torch.$(v, v)"},
    {"tensordot", "torch.tensordot(a, b, [1], [0])"},
    {"bilinear", "torch.bilinear(a, a, torch.stack([torch.outer(v, v), torch.outer(v, v)]))"},
    {"scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu", "torch.$(q, k, k)"},
    {"conv1d", "torch.conv1d(x, f1)"},
    {"conv2d", "torch.conv2d(im, f2)"},
    {"conv3d", "torch.conv3d(im3, f3)"},
    {"conv_transpose1d", "torch.conv_transpose1d(x, f1.transpose(0, 1))"},
    {"conv_transpose2d", "torch.conv_transpose2d(im, f2.transpose(0, 1))"},
    {"conv_transpose3d", "torch.conv_transpose3d(im3, f3.transpose(0, 1))"},
    {"convolution", "torch.convolution(im, f2, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)"},
    {"_convolution",
     "torch._convolution(im, f2, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, False, False, False, False)"},
    {"convolution_backward",
     "torch.convolution_backward(torch.ones_like(torch.conv2d(im, f2)), im, f2, None, [1, 1], [0, 0], [1, 1], False, "
     "[0, 0], 1, "
     "[True, True, False])"},
    {"conv_tbc", "torch.conv_tbc(x, torch.unsqueeze(b, 0), n)"},
    {"rnn_tanh rnn_relu", "torch.$(x, h, [w, hh, n, n], True, 1, 0.0, False, False, False)"},
    {"gru", "torch.gru(x, h, [torch.cat([w, w, w]), torch.cat([hh, hh, hh])], False, 1, 0.0, False, False, False)"},
    {"lstm",
     "torch.lstm(x, [h, h], [torch.cat([w, w, w, w]), torch.cat([hh, hh, hh, hh])], False, 1, 0.0, False, False, "
     "False)"},
    {"rnn_tanh_cell rnn_relu_cell", "torch.$(a, h[0], w, hh)"},
    {"gru_cell", "torch.gru_cell(a, h[0], torch.cat([w, w, w]), torch.cat([hh, hh, hh]))"},
    {"lstm_cell", "torch.lstm_cell(a, [h[0], h[0]], torch.cat([w, w, w, w]), torch.cat([hh, hh, hh, hh]))"},
    {"prelu", "torch.prelu(x, n[:1])"},

    {"sum mean amax", "torch.$(x, [-1], True)"},
    {"min max softmax log_softmax", "torch.$(x, -1)"},
    {"kthvalue topk", "torch.$(x, 2)"},
    {"cumsum cumprod logcumsumexp", "torch.$(x, 1)"},
    {"trace t numpy_T diagonal", "torch.$(a)"},
    {"frobenius_norm", "torch.frobenius_norm(x, [1, 2])"},
    {"layer_norm", "torch.layer_norm(x, [x.size(-1)], v, v)"},
    {"native_layer_norm", "torch.native_layer_norm(x, [x.size(-1)], v, v, 1e-05)"},
    {"rms_norm", "torch.rms_norm(x, [x.size(-1)], v)"},
    {"group_norm", "torch.group_norm(x, 1, e, e)"},
    {"native_group_norm", "torch.native_group_norm(x, e, e, x.size(0), x.size(1), x.size(2), 1, 1e-05)"},
    {"batch_norm instance_norm", "torch.$(x, e, e, None, None, True, 0.1, 1e-05, False)"},
    {"_softmax _log_softmax", "torch.$(x, -1, False)"},
    {"logsumexp", "torch.logsumexp(x, [1])"},
    {"cross_entropy_loss nll_loss nll_loss_nd multi_margin_loss", "torch.$(a, l)"},
    {"nll_loss2d", "torch.nll_loss2d(im, torch.zeros([im.size(0), im.size(2), im.size(3)], dtype=4))"},
    {"binary_cross_entropy", "torch.binary_cross_entropy(p, p)"},
    {"binary_cross_entropy_with_logits", "torch.binary_cross_entropy_with_logits(x, p)"},
    {"poisson_nll_loss", "torch.poisson_nll_loss(x, p, True, False, 1e-08, 1)"},
    {"cosine_embedding_loss", "torch.cosine_embedding_loss(a, a, torch.ones_like(e))"},
    {"margin_ranking_loss", "torch.margin_ranking_loss(x, y, torch.ones_like(x))"},
    {"hinge_embedding_loss soft_margin_loss", "torch.$(x, torch.ones_like(x))"},
    {"avg_pool1d max_pool1d adaptive_avg_pool1d adaptive_max_pool1d", "torch.$(x, [2])"},
    {"avg_pool2d max_pool2d adaptive_avg_pool2d adaptive_max_pool2d", "torch.$(im, [2, 2])"},
    {"avg_pool3d max_pool3d adaptive_avg_pool3d adaptive_max_pool3d", "torch.$(im3, [2, 2, 2])"},

    {"to", "torch.to(x, 6)"},
    {"_to_copy", "torch._to_copy(x, dtype=6)"},
    {"view reshape _unsafe_view", "torch.$(x, [-1])"},
    {"unsqueeze", "torch.unsqueeze(x, 0)"},
    {"unflatten", "torch.unflatten(x, 0, [1, x.size(0)])"},
    {"_reshape_alias", "torch._reshape_alias(v, [v.size(0)], [1])"},
    {"transpose movedim", "torch.$(x, 0, 1)"},
    {"permute", "torch.permute(x, [2, 0, 1])"},
    {"pixel_shuffle pixel_unshuffle", "torch.$(im, 1)"},
    {"flip roll", "torch.$(x, [1])"},
    {"slice", "torch.slice(x, -1, 1, 4, 1)"},
    {"select", "torch.select(x, 0, 0)"},
    {"narrow", "torch.narrow(x, 0, 0, 1)"},
    {"chunk split tensor_split unsafe_chunk unsafe_split", "torch.$(x, 2)"},
    {"split_with_sizes", "torch.split_with_sizes(x, [1, x.size(0) - 1])"},
    {"as_strided", "torch.as_strided(v, [2], [1])"},
    {"unfold", "torch.unfold(x, 0, 1, 1)"},
    {"masked_select", "torch.masked_select(x, m)"},
    {"__getitem__", "[x, y][0]"},
    {"dropout feature_dropout", "torch.$(x, 0.5, False)"},
    {"expand broadcast_to", "torch.$(v, [2, v.size(0)])"},
    {"meshgrid", "torch.meshgrid([v, n])"},
    {"repeat", "torch.repeat(x, [2, 1, 1])"},
    {"repeat_interleave", "torch.repeat_interleave(x, 2)"},
    {"tile", "torch.tile(x, [2])"},
    {"broadcast_tensors", "torch.broadcast_tensors([x, v])"},
    {"pad constant_pad_nd", "torch.$(x, [0, 1])"},
    {"upsample_nearest1d", "torch.upsample_nearest1d(x, [4])"},
    {"upsample_nearest2d", "torch.upsample_nearest2d(im, [4, 5])"},
    {"upsample_nearest3d", "torch.upsample_nearest3d(im3, [4, 5, 6])"},
    {"upsample_linear1d", "torch.upsample_linear1d(x, [4], False)"},
    {"upsample_bilinear2d upsample_bicubic2d", "torch.$(im, [4, 5], False)"},
    {"upsample_trilinear3d", "torch.upsample_trilinear3d(im3, [4, 5, 6], False)"},
    {"cat", "torch.$([x, y], -1)"},
    {"stack hstack vstack", "torch.$([x, y])"},
    {"embedding", "torch.embedding(w, ids)"},
    {"embedding_bag", "torch.embedding_bag(w, j, torch.zeros([1], dtype=4))"},
    {"gather", "torch.gather(x, 2, i)"},
    {"index_select", "torch.index_select(x, 0, j)"},
    {"index", "x[j]"},
    {"take_along_dim", "torch.take_along_dim(x, i, 2)"},
    {"scatter scatter_add", "torch.$(x, 2, i, y)"},
    {"scatter_reduce", "torch.scatter_reduce(x, 2, i, y, 'sum')"},
    {"index_put", "torch.index_put(x, [j], y[j])"},
    {"index_copy index_add", "torch.$(x, 0, torch.arange(2), y[:2])"},
    {"index_reduce", "torch.index_reduce(x, 0, torch.arange(2), y[:2], 'mean')"},
    {"masked_scatter", "torch.masked_scatter(x, m, y)"},
    {"put", "torch.put(x, j, v[:3])"},
    {"grid_sampler grid_sampler_2d", "torch.$(im, g, 0, 0, False)"},

    {"arange", "torch.arange(4)"},
    {"linspace", "torch.linspace(0.0, 1.0, 3)"},
    {"eye", "torch.eye(3)"},
    {"tensor scalar_tensor", "torch.$(2.5)"},
    {"zeros ones empty", "torch.$([2])"},
    {"full", "torch.full([2], 1.5)"},
    {"full_like fill", "torch.$(x, 2.0)"},
    {"new_zeros new_ones new_empty", "torch.$(x, [2])"},
    {"new_full", "torch.new_full(x, [2], 1.5)"},
    {"multinomial", "torch.multinomial(p[0], 1)"},
    {"len", "len(x)"},
    {"sym_size", "torch.sym_size(x, 0)"},
    {"prim::dtype", "x.dtype"},
    {"prim::device", "x.device"},
    {"prim::is_cuda", "x.is_cuda"},
    {"prim::layout", "x.layout"},
    {"Int", "int(s)"},
    {"Float", "float(s)"},
    {"Bool", "bool(s)"},
    {"item is_nonzero", "torch.$(s)"},
    {"searchsorted", "torch.searchsorted(torch.sort(v)[0], x)"},
    {"bucketize", "torch.bucketize(x, torch.sort(v)[0])"},
    {"floordiv", "x.size(0) // 2"},
    {"prim::ListConstruct", "[x, y]"},
    {"prim::TupleConstruct", "(x, y)"},

    // As TorchScript's own text: what its compiler replaces by a synonym, and ours.
    {"rsub", "%one : int = prim::Constant[value=1]()\n %out : Tensor = aten::rsub(%x, %y, %one)"},
    {"linalg_matmul", "%out : Tensor = aten::linalg_matmul(%a, %b)"},
    {"swapaxes swapdims moveaxis",
     "%d0 : int = prim::Constant[value=0]()\n %d1 : int = prim::Constant[value=1]()\n"
     " %out : Tensor = aten::$(%x, %d0, %d1)"},
    {"concat",
     "%d1 : int = prim::Constant[value=1]()\n %both : Tensor[] = prim::ListConstruct(%x, %y)\n"
     " %out : Tensor = aten::concat(%both, %d1)"},
    {"dslaunch::linear",
     "%f : bool = prim::Constant[value=0]()\n %out : Tensor = dslaunch::linear(%x, %w, %n, %f, %f)"},
    {"dslaunch::matmul", "%f : bool = prim::Constant[value=0]()\n %out : Tensor = dslaunch::matmul(%x, %b, %f, %f)"},
    {"dslaunch::addmm",
     "%f : bool = prim::Constant[value=0]()\n %one : int = prim::Constant[value=1]()\n"
     " %out : Tensor = dslaunch::addmm(%n, %a, %b, %one, %one, %f, %f)"},
    {"dslaunch::with_bias", "%out : Tensor = dslaunch::with_bias(%x, %v)"},
    {"dslaunch::layer_norm",
     "%eps : float = prim::Constant[value=1e-05]()\n %f : bool = prim::Constant[value=0]()\n"
     " %dim : int = prim::Constant[value=-1]()\n %last : int = aten::size(%x, %dim)\n"
     " %shape : int[] = prim::ListConstruct(%last)\n"
     " %out : Tensor = dslaunch::layer_norm(%x, %shape, %v, %v, %eps, %f)"},
    {"dslaunch::narrow_fp32",
     "%type : int = prim::Constant[value=6]()\n %out : Tensor = dslaunch::narrow_fp32(%x, %type)"},
    {"dslaunch::match_type",
     "%f : bool = prim::Constant[value=0]()\n %out : Tensor = dslaunch::match_type(%x, %y, %f)"},
    {"dslaunch::shape_like", "%out : Tensor = dslaunch::shape_like(%x)"},
    {"prim::NumToTensor", "%n1 : int = prim::Constant[value=3]()\n %out : Tensor = prim::NumToTensor(%n1)"},
    {"IntImplicit", "%out : int = aten::$(%z)"},
    {"FloatImplicit", "%out : float = aten::$(%s)"},
    {"ScalarImplicit", "%out : Scalar = aten::$(%s)"},
};

// What has no sample, and why.
const Sample kWithoutSample[] = {
    {"_grouped_mm _scaled_mm _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
     "_scaled_dot_product_cudnn_attention _scaled_dot_product_fused_attention_overrideable _cudnn_rnn_backward",
     "runs on GPUs only"},
    {"_scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward "
     "_scaled_dot_product_cudnn_attention_backward _scaled_dot_product_flash_attention_for_cpu_backward "
     "_scaled_dot_product_fused_attention_overrideable_backward",
     "takes what the kernel of its forward keeps"},
    {"dslaunch::linear_cut dslaunch::addmm_cut", "GEMMs with a cut behind them: linear_cut_test.cpp"},
    {"dslaunch::copy_to_tensor_group dslaunch::reduce_from_tensor_group", "communicates: tensor_operators_test.cpp"},
    {"dslaunch::reduce_in_tensor_group", "communicates: the texts of tensor ranks, inference/tensor_ranks_test.cpp"},
    {"ctc_loss", "lengths in lists; its only column is its type"},
    {"device", "takes a text"},
    {"prim::unchecked_cast prim::tolist prim::ListUnpack prim::TupleUnpack prim::TupleIndex prim::DictConstruct",
     "exists in graphs only, or with a type annotation"},
    {"warn prim::Print prim::RaiseException", "has no result"},
};

std::vector<std::string> words(const char* text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), std::istream_iterator<std::string>()};
}

std::string qualified(const std::string& name) {
  return name.find("::") == std::string::npos ? "aten::" + name : name;
}

std::map<std::string, std::string> expressions() {
  std::map<std::string, std::string> out;
  for (const auto& [names, expression] : kSamples) {
    for (const auto& name : words(names)) {
      std::string text = expression;
      if (const auto at = text.find('$'); at != std::string::npos) text.replace(at, 1, name);
      out[qualified(name)] = text;
    }
  }
  return out;
}

const std::map<std::string, std::string>& all_expressions() {
  static const auto all = expressions();
  return all;
}

bool is_ir(const std::string& expression) {
  return expression.front() == '%';
}

std::shared_ptr<torch::jit::Graph> graph_of(const std::string& expression, const SampleInputs& inputs) {
  std::string parameters;
  for (const auto& [name, tensor] : inputs) {
    parameters += (parameters.empty() ? "" : ", ") + (is_ir(expression) ? "%" + name + " : Tensor" : name);
  }
  if (is_ir(expression)) {
    auto graph = std::make_shared<torch::jit::Graph>();
    torch::jit::parseIR("graph(" + parameters + "):\n " + expression + "\n return (%out)\n", graph.get());
    return graph;
  }
  const auto unit = torch::jit::compile("def sample(" + parameters + "):\n    return " + expression + "\n");
  return torch::jit::toGraphFunction(unit->get_function("sample")).graph()->copy();
}

}  // namespace

std::vector<std::string> table_names() {
  std::vector<std::string> out;
  for (const Rows rows : all_rows()) {
    for (const Row& row : rows) {
      for (const auto& name : words(std::string(row.names).c_str())) out.push_back(qualified(name));
    }
  }
  return out;
}

SampleInputs random_inputs(uint32_t seed) {
  at::manual_seed(seed);
  std::mt19937 random(seed);
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint32_t>(high - low + 1));
  };
  const int64_t B = between(2, 3), T = between(2, 4), C = between(5, 7), N = between(2, 4);
  const at::Tensor x = at::randn({B, T, C}), other = at::randn({B, T, C});
  return {{"x", x},
          {"y", at::where(at::rand({B, T, C}) < 0.3, x, other)},  // some elements are equal
          {"p", at::rand({B, T, C}) * 0.8 + 0.1},
          {"m", at::rand({B, T, C}) < 0.5},
          {"o", at::rand({B, T, C}) < 0.5},
          {"i", at::randint(2, {B, T, C}, at::kLong)},
          {"ids", at::randint(N, {B, T}, at::kLong)},
          {"j", at::randint(2, {3}, at::kLong)},
          {"l", at::randint(C, {T}, at::kLong)},
          {"s", at::rand({}) + 1.5},
          {"z", at::randint(2, 9, {}, at::kLong)},
          {"a", at::randn({T, C})},
          {"b", at::randn({C, N})},
          {"c", at::randn({B, C, N})},
          {"w", at::randn({N, C})},
          {"v", at::randn({C})},
          {"n", at::randn({N})},
          {"e", at::randn({T})},
          {"q", at::randn({B, N, T, C})},
          {"k", at::randn({B, N, T + 1, C})},
          {"h", at::randn({1, T, N})},
          {"hh", at::randn({N, N})},
          {"im", at::randn({B, T, 5, 6})},
          {"im3", at::randn({B, T, 4, 5, 3})},
          {"f1", at::randn({N, T, 3})},
          {"f2", at::randn({N, T, 3, 2})},
          {"f3", at::randn({N, T, 2, 3, 2})},
          {"g", at::rand({B, 3, 2, 2}) - 0.5}};
}

SampleInputs with_floats_of(const SampleInputs& inputs, at::ScalarType dtype) {
  SampleInputs out = inputs;
  for (auto& [name, tensor] : out) tensor = tensor.is_floating_point() ? tensor.to(dtype) : tensor;
  return out;
}

SampleCall::SampleCall(const std::string& name) : graph_(graph_of(all_expressions().at(name), random_inputs(0))) {
  const auto kind = c10::Symbol::fromQualString(name);
  for (const auto* node : graph_->nodes()) {
    if (node->kind() == kind) node_ = node;
  }
  INFO(graph_->toString());
  REQUIRE(node_ != nullptr);
}

std::vector<c10::IValue> SampleCall::arguments(const SampleInputs& inputs) const {
  std::vector<c10::IValue> out;
  for (const auto& [name, tensor] : inputs) out.emplace_back(tensor);
  return out;
}

SampleCall::Values SampleCall::run(const SampleInputs& inputs) const {
  std::unordered_map<torch::jit::Value*, torch::jit::Value*> copies;
  auto graph = std::make_shared<torch::jit::Graph>();
  for (auto* input : graph_->inputs()) copies[input] = graph->addInput()->copyMetadata(input);
  const torch::jit::Node* copied = nullptr;
  for (auto* node : graph_->nodes()) {
    auto* copy =
        graph->insertNode(graph->createClone(node, [&](torch::jit::Value* value) { return copies.at(value); }));
    for (size_t i = 0; i < node->outputs().size(); ++i) copies[node->output(i)] = copy->output(i);
    if (node == node_) copied = copy;
  }
  for (auto* value : copied->inputs()) graph->registerOutput(const_cast<torch::jit::Value*>(value));
  for (auto* value : copied->outputs()) graph->registerOutput(const_cast<torch::jit::Value*>(value));
  torch::jit::Stack stack = arguments(inputs);
  torch::jit::InterpreterState(torch::jit::Code(graph, "sample")).run(stack);
  const auto results = stack.begin() + static_cast<std::ptrdiff_t>(copied->inputs().size());
  return {{stack.begin(), results}, {results, stack.end()}};
}

std::vector<std::string> SampleCall::operand_names() const {
  std::vector<std::string> names, out;
  for (const auto& [name, tensor] : random_inputs(0)) names.push_back(name);
  const auto add = [&](const torch::jit::Value* value) {
    out.push_back(value->node() == graph_->param_node() ? names.at(value->offset()) : "");
  };
  for (const auto* value : node_->inputs()) {
    if (value->node()->kind() == c10::prim::ListConstruct) {
      for (const auto* element : value->node()->inputs()) add(element);
    } else {
      add(value);
    }
  }
  return out;
}

bool has_sample(std::string_view name) {
  return all_expressions().count(std::string(name)) > 0;
}

std::vector<std::string> names_without_sample() {
  std::vector<std::string> out;
  for (const auto& [names, reason] : kWithoutSample) {
    for (const auto& name : words(names)) out.push_back(qualified(name));
  }
  return out;
}

void for_every(const std::function<bool(const OperatorTraits&)>& is_chosen,
               const std::function<void(const std::string& name, const SampleCall& call)>& check) {
  int count = 0;
  for (const auto& name : table_names()) {
    if (!has_sample(name) || !is_chosen(traits(std::string_view(name)))) continue;
    INFO(name);
    check(name, SampleCall(name));
    count += 1;
  }
  CHECK(count > 0);
}

std::vector<at::Tensor> tensors_in(const std::vector<c10::IValue>& values) {
  std::vector<at::Tensor> out;
  for (const auto& value : values) {
    if (value.isTensor() && value.toTensor().defined()) out.push_back(value.toTensor());
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) out.push_back(tensor);
    }
  }
  return out;
}

}  // namespace dslaunch::test
