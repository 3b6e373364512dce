#include "runtime/model/torchscript/graph_passes.hpp"

#include "base/log.hpp"
#include "runtime/device/device_module.hpp"
#include "runtime/model/constants/constant_region.hpp"
#include "runtime/model/constants/known_masks.hpp"
#include "runtime/model/dtypes/dtype_plan.hpp"
#include "runtime/model/fusion/fusion_passes.hpp"
#include "runtime/model/fusion/segmenter.hpp"
#include "runtime/model/layers/attention.hpp"
#include "runtime/model/layers/chunked_head.hpp"
#include "runtime/model/layers/cross_entropy.hpp"
#include "runtime/model/layers/experts.hpp"
#include "runtime/model/layers/fp8_layers.hpp"
#include "runtime/model/layers/fp8_linear.hpp"
#include "runtime/model/layers/gemm_handle.hpp"
#include "runtime/model/layers/layer_norm.hpp"
#include "runtime/model/layers/linear.hpp"
#include "runtime/model/layers/router.hpp"
#include "runtime/model/rewrites/autocast_regions.hpp"
#include "runtime/model/rewrites/graph_constants.hpp"
#include "runtime/model/rewrites/training_flag_rewrite.hpp"
#include "runtime/model/torchscript/plain_execution.hpp"
#include "runtime/model/torchscript/training_modes.hpp"
#include "runtime/state/mask_minimum.hpp"

namespace dslaunch::runtime::model::torchscript {
namespace {

using passes::GraphPass;
using passes::NodeRewrite;
using passes::PassContext;
using passes::PassNeeds;
using passes::PassTarget;

void add_notes(PassContext& context, const std::vector<std::string>& notes) {
  context.notes.insert(context.notes.end(), notes.begin(), notes.end());
}

void follow_compute_dtype(PassContext& context) {
  const auto dtype = context.options.compute_dtype;
  if (!is_half(dtype)) return;
  auto rewrite = dtypes::follow_dtype(context.module, dtype);
  context.fp32_buffers = std::move(rewrite.fp32_buffers);
  add_notes(context, rewrite.notes);
}

void rewrite_training_flags(PassContext& context) {
  add_notes(context, describe_traced_modes(rewrites::bind_training_flag(context.module)));
}

void chunk_heads(PassContext& context) {
  if (!context.options.chunks_cross_entropy) return;
  const int count = layers::chunk_heads(context.module);
  if (count > 0) log::debug("graph pass chunked_cross_entropy: {} losses", count);
}

void use_fp8(PassContext& context) {
  if (!context.options.fp8) return;
  context.fp8 = layers::use_fp8(context.module, *context.options.fp8, context.options.keeps_fp8_weights);
}

void join_fp8_layers(PassContext& context) {
  if (!context.options.fp8) return;
  const int count = layers::join_fp8_layers(context.module);
  if (count > 0) log::debug("graph pass fp8_inputs: {} layers share one", count);
}

const std::shared_ptr<constants::KnownMasks>& masks_of(PassContext& context) {
  if (context.masks == nullptr) context.masks = std::make_shared<constants::KnownMasks>();
  return context.masks;
}

void keep_constants(PassContext& context) {
  const int count =
      constants::keep_constants(context.module, {masks_of(context), context.device, device::is_capturing});
  if (count > 0) log::debug("graph pass constants: {} regions", count);
}

void group_attention_heads(PassContext& context) {
  const int count = layers::group_attention_heads(context.module);
  if (count > 0) log::debug("graph pass grouped_attention: {} calls", count);
}

void order_experts(PassContext& context) {
  if (!context.device.is_cuda() && !context.options.regions_on_cpu) return;
  const int num_routers = layers::fuse_routers(context.module), num_layers = layers::order_experts(context.module);
  if (num_routers + num_layers > 0) log::debug("graph pass experts: {} routers, {} layers", num_routers, num_layers);
}

void fuse_regions(PassContext& context) {
  if (!context.device.is_cuda() && !context.options.regions_on_cpu) return;
  auto services = c10::make_intrusive<fusion::FusionServices>();
  services->kernels = context.options.kernel_library;
  services->notes_maxima = context.options.fp8 == config::Fp8Recipe::kTensorwise;
  if (context.options.programs) services->log = context.options.programs;
  const int count = fusion::fuse_regions(context.module, services);
  if (count > 0) log::debug("graph pass fused_regions: {} groups of operators", count);
}

void fuse_linear_cuts(PassContext& context) {
  if (!context.device.is_cuda() && !context.options.regions_on_cpu) return;
  const int count = layers::fuse_linear_cuts(context.module);
  if (count > 0) log::debug("graph pass linear_cut: {} GEMMs", count);
}

void add_residual_gradients(PassContext& context) {
  if (!context.device.is_cuda() && !context.options.regions_on_cpu) return;
  if (!context.options.kernels.layer_norm && !context.options.kernels.fused_regions) return;
  const int count = fusion::add_residual_gradients(context.module);
  if (count > 0) log::debug("graph pass residual_gradients: {} layer norms and regions", count);
}

void offer_outputs(PassContext& context) {
  if (!context.options.recomputes_outputs || !context.options.kernels.weight_gradient) return;
  const int count = fusion::offer_outputs(context.module);
  if (count > 0) log::debug("graph pass recomputed_outputs: {}", count);
}

void hand_gemms(PassContext& context) {
  if (!context.options.gemms) return;
  const int count = layers::hand_gemms(context.module, context.options.gemms);
  if (count > 0) log::debug("graph pass gemm_autotuning: {} operators", count);
}

}  // namespace

const std::vector<GraphPass>& graph_passes() {
  using config::Kernels;
  constexpr auto kModel = PassTarget::kModel, kModelAndLoss = PassTarget::kModelAndLoss;
  constexpr auto kGraphs = PassNeeds::kGraphs, kDevice = PassNeeds::kDevice;
  using enum passes::Form;
  constexpr passes::Forms kNone;
  const auto over = [](const char* name) { return graph::Pattern{.operators = {name}, .operands = {}}; };
  static const std::vector<GraphPass> passes{
      // name, key, needs, target, what it reads, makes and ends, rewrite
      {"compute_dtype", nullptr, kGraphs, kModel, kAsInFile, kNone, kNone, follow_compute_dtype},
      {"plain_forks", nullptr, kGraphs, kModel, kNone, kNone, kNone,
       [](PassContext& run) { disable_optimizer_in_forks(run.module); }},
      {"size_arithmetic", &Kernels::size_arithmetic, kGraphs, kModelAndLoss, kNone, kNone, kNone,
       [](PassContext& run) { rewrites::rewrite_size_arithmetic(run.module); }},
      {"autocast_regions", nullptr, kGraphs, kModelAndLoss, kNone, kNone, kNone,
       [](PassContext& run) { rewrites::apply_autocast_regions(run.module); }},
      {"inlined_cross_entropy", &Kernels::cross_entropy, kGraphs, kModelAndLoss, kNone, kInlinedLosses, kNone,
       [](PassContext& run) { layers::inline_cross_entropy(run.module); }},
      {"fused_cross_entropy", &Kernels::cross_entropy, kGraphs, kModelAndLoss, kInlinedLosses, kOwnLosses, kNone,
       NodeRewrite{over("aten::cross_entropy_loss"), layers::fuse_cross_entropy}},
      {"chunked_cross_entropy", &Kernels::chunked_cross_entropy, kGraphs, kModel, kOwnLosses | kPlainGemms, kNone,
       kNone, chunk_heads},
      {"fused_layer_norm", &Kernels::layer_norm, kGraphs, kModelAndLoss, kPlainOperators, kNone, kNone,
       NodeRewrite{over("aten::layer_norm"), layers::fuse_layer_norm}},
      {"bias_gradients", &Kernels::bias_gradient, kGraphs, kModelAndLoss, kPlainGemms, kOwnGemms, kPlainGemms,
       NodeRewrite{{.operators = {"aten::linear", "aten::addmm"}, .operands = {}}, layers::sum_bias_gradient}},
      {"weight_gradients", &Kernels::weight_gradient, kGraphs, kModel, kOwnGemms, kNone, kNone,
       [](PassContext& run) { layers::take_weight_gradients(run.module, /*writes=*/true); }},
      {"fp8", nullptr, kGraphs, kModel, kOwnGemms, kNone, kNone, use_fp8},
      {"training_flag", nullptr, kGraphs, kModel, kNone, kNone, kNone, rewrite_training_flags},
      {"device_constants", nullptr, kDevice, kModelAndLoss, kNone, kPlacedConstants, kNone,
       [](PassContext& run) { rewrites::rewrite_device_constants(run.module, run.device); }},
      {"mask_minima", nullptr, kDevice, kModel, kNone, kFittedConstants, kNone,
       [](PassContext& run) { rewrites::fit_constants(run.module, run.smallest_dtype, run.notes); }},
      {"numbers", nullptr, kDevice, kModelAndLoss, kPlacedConstants | kFittedConstants, kNumbers, kNone,
       [](PassContext& run) { rewrites::restore_numbers(run.module); }},
      // The following put operators of ours into graphs that are otherwise final.
      {"experts", &Kernels::fused_regions, kDevice, kModel, kPlainOperators, kNone, kNone, order_experts},
      {"constants", &Kernels::constants, kDevice, kModel, kNumbers | kPlainOperators, kKeptConstants, kNone,
       keep_constants},
      {"attention_masks", &Kernels::attention_masks, kDevice, kModel, kKeptConstants | kPlainOperators, kNone, kNone,
       [](PassContext& run) { layers::simplify_attention_masks(run.module, masks_of(run)); }},
      {"grouped_attention", &Kernels::grouped_attention, kDevice, kModel, kPlainOperators, kNone, kNone,
       group_attention_heads},
      // Other passes do not look into regions; what they leave is for the last ones.
      {"fused_regions", &Kernels::fused_regions, kDevice, kModel, kPlainOperators, kRegions, kPlainOperators,
       fuse_regions},
      {"linear_cut", &Kernels::bias_gradient, kDevice, kModel, kOwnGemms | kRegions, kCutGemms, kNone,
       fuse_linear_cuts},
      {"residual_gradients", &Kernels::residual_gradient, kDevice, kModel, kRegions, kResidualGradients, kNone,
       add_residual_gradients},
      {"recomputed_outputs", &Kernels::fused_regions, kDevice, kModel, kRegions | kCutGemms | kResidualGradients, kNone,
       kNone, offer_outputs},
      {"fp8_inputs", nullptr, kDevice, kModel, kOwnGemms | kCutGemms, kNone, kNone, join_fp8_layers},
      {"gemm_autotuning", nullptr, kDevice, kModel, kOwnGemms | kCutGemms, kNone, kNone, hand_gemms},
  };
  return passes;
}

void run_loss_passes(const torch::jit::Module& loss, const config::Kernels& kernels, at::Device device) {
  PassContext context{.module = loss, .options = {kernels}, .device = device};
  for (const auto needs : {PassNeeds::kGraphs, PassNeeds::kDevice}) {
    passes::run_passes(graph_passes(), needs, PassTarget::kModelAndLoss, context);
  }
}

}  // namespace dslaunch::runtime::model::torchscript
