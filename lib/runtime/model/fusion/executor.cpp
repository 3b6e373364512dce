#include "runtime/model/fusion/executor.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/device/device_module.hpp"
#include "runtime/device/fp8_maxima.hpp"
#include "runtime/device/launch_overlap.hpp"
#include "runtime/generated_kernels/kernel_library.hpp"

namespace dslaunch::runtime::model::fusion {
namespace {

constexpr int64_t kMultiprocessors = 132;  // of an H100; elsewhere the shapes, and so the sums, are the same
constexpr int64_t kRowsForSums = 4;        // at least, of each group of threads

// Strides over [leading..., columns], 0 where the tensor has one value for all.
std::vector<int64_t> broadcast_strides(const at::Tensor& tensor, size_t num_leading, int64_t width) {
  std::vector<int64_t> out(num_leading + 1, 0);
  const auto rank = static_cast<size_t>(tensor.dim());
  for (size_t i = 0; i < rank; ++i) {
    const size_t from_end = rank - 1 - i;
    if (tensor.size(static_cast<int64_t>(i)) > 1) out[num_leading - from_end] = tensor.stride(static_cast<int64_t>(i));
  }
  if (width == 1) out.back() = 0;
  return out;
}

bool is_summed(const Region& region, size_t output) {
  return region.outputs[output].rows == Rows::kSum;
}

bool sums_rows(const Region& region) {
  return std::any_of(region.outputs.begin(), region.outputs.end(),
                     [](const Output& output) { return output.rows == Rows::kSum; });
}

int64_t rounded_up(int64_t count, int64_t unit) {
  return (count + unit - 1) / unit;
}

// Blocks that loop over rows all run at once, with equally many rows as far as these can be divided.
int64_t num_blocks(const KernelSource& source, int64_t rows, bool sums) {
  if (source.threads_per_row == 1 && !source.loops_over_rows) {
    return rounded_up(rows * source.chunks_per_row, int64_t{source.threads} * source.chunks_per_thread);
  }
  const int64_t groups = rounded_up(rows, source.rows_per_block());
  if (!source.loops_over_rows) return groups;
  int64_t most = std::min(groups, kMultiprocessors * source.blocks_per_multiprocessor);
  if (sums) most = std::clamp<int64_t>(rows / (source.rows_per_block() * kRowsForSums), 1, most);
  return rounded_up(groups, rounded_up(groups, most));
}

// The dims in the order of the memory of `like`, the farthest apart first.
std::vector<size_t> memory_order(const std::vector<int64_t>& strides, const std::vector<int64_t>& leading) {
  std::vector<size_t> out;
  for (size_t d = 0; d < leading.size(); ++d) {
    if (leading[d] != 1) out.push_back(d);
  }
  std::stable_sort(out.begin(), out.end(), [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  return out;
}

// The widest access at which the tensor's rows begin at whole accesses.
int aligned_vector(const at::Tensor& tensor, const std::vector<int64_t>& strides, int vector) {
  const auto size = static_cast<int64_t>(tensor.element_size());
  const auto address = tensor.is_meta() ? uintptr_t{0} : reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  for (; vector > 1; vector /= 2) {
    const int64_t bytes = std::min<int64_t>(16, vector * size);
    bool fits = address % static_cast<uintptr_t>(bytes) == 0;
    for (size_t d = 0; d + 1 < strides.size(); ++d) fits = fits && strides[d] * size % bytes == 0;
    if (fits) return vector;
  }
  return 1;
}

std::vector<size_t> outputs_with_maximum(const Region& region) {
  std::vector<size_t> out;
  for (size_t i = 0; i < region.outputs.size(); ++i) {
    if (has_maximum(region, region.outputs[i])) out.push_back(i);
  }
  return out;
}

std::string layout_key(const Launch& launch) {
  std::string key = fmt::format("{} {} ", launch.layout.num_dims, launch.layout.vector);
  for (const auto& input : launch.varies) {
    for (const bool varies : input) key += varies ? '*' : '1';
  }
  for (const bool strided : launch.layout.has_column_stride) key += strided ? 's' : '.';
  return key;
}

}  // namespace

Launch plan_launch(const Region& region, const std::vector<int64_t>& leading, const std::vector<at::Tensor>& inputs,
                   const std::vector<at::Tensor>& outputs) {
  Launch out;
  std::vector<std::vector<int64_t>> all;
  std::vector<int64_t> like(leading.size() + 1, 0);
  bool has_kept_output = false;
  std::vector<int64_t> widths(region.inputs.size() + region.outputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    widths[i] = region.inputs[i].width;
    all.push_back(broadcast_strides(inputs[i], leading.size(), widths[i]));
    for (size_t d = 0; d < like.size(); ++d) like[d] = std::max(like[d], all.back()[d]);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int64_t width = region.node(region.outputs[i].value).width;
    widths[inputs.size() + i] = width;
    if (is_summed(region, i)) {
      all.emplace_back(leading.size() + 1, 0);
      continue;
    }
    all.push_back(broadcast_strides(outputs[i], leading.size(), width));
    if (!has_kept_output) like = all.back();
    has_kept_output = true;
  }

  // Neighbours that every tensor walks through in one stride are one dim.
  std::vector<std::vector<size_t>> merged;
  for (const size_t d : memory_order(like, leading)) {
    const auto continues = [&](const std::vector<int64_t>& strides) {
      return strides[merged.back().back()] == strides[d] * leading[d];
    };
    if (!merged.empty() && std::all_of(all.begin(), all.end(), continues)) {
      merged.back().push_back(d);
    } else {
      merged.push_back({d});
    }
  }
  for (const auto& dims : merged) {
    int64_t size = 1;
    for (const size_t d : dims) size *= leading[d];
    out.sizes.push_back(size);
    out.rows *= size;
  }
  for (const auto& strides : all) {
    std::vector<int64_t> of_merged;
    for (const auto& dims : merged) of_merged.push_back(strides[dims.back()]);
    if (merged.empty()) of_merged.push_back(0);
    of_merged.push_back(strides.back());
    out.strides.push_back(std::move(of_merged));
  }
  if (merged.empty()) out.sizes.push_back(1);

  auto& layout = out.layout;
  layout.num_dims = static_cast<int>(out.sizes.size());
  layout.vector = largest_vector(region);
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto& varies = out.varies.emplace_back();
    for (size_t d = 0; d < out.sizes.size(); ++d) varies.push_back(out.strides[i][d] != 0);
    const bool strided = widths[i] > 1 && out.strides[i].back() != 1;
    layout.has_column_stride.push_back(strided);
    if (strided) layout.vector = 1;
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const bool is_input = i < inputs.size();
    if (widths[i] == 1 || (!is_input && is_summed(region, i - inputs.size()))) continue;
    layout.vector = aligned_vector(is_input ? inputs[i] : outputs[i - inputs.size()], out.strides[i], layout.vector);
  }
  return out;
}

Result<KernelSource> FusionExecutor::source_for(const Launch& launch) const {
  Region region = region_;
  region.num_leading_dims = launch.sizes.size();
  for (size_t i = 0; i < region.inputs.size(); ++i) region.inputs[i].varies = launch.varies[i];
  KernelLayout layout = launch.layout;
  layout.notes_maxima = services_->notes_maxima;
  return kernel_source(region, layout);
}

void FusionExecutor::prepare(const std::vector<int64_t>& leading, const std::vector<at::Tensor>& inputs,
                             const std::vector<at::Tensor>& outputs, const at::Tensor& like) {
  const Launch launch = plan_launch(region_, leading, inputs, outputs);
  {
    const std::lock_guard lock(mutex_);
    if (loaded_.contains(layout_key(launch) + like.device().str())) return;
  }
  const auto source = source_for(launch);
  if (!source.ok()) return;  // said when it runs
  library().prepare(source->text, device::module().fusion.architecture(like));
}

generated_kernels::KernelLibrary& FusionExecutor::library() const {
  DSL_CHECK(services_ && services_->kernels, "a model that runs on a GPU was loaded with a library of kernels");
  return *services_->kernels;
}

const FusionExecutor::Loaded* FusionExecutor::loaded(const Launch& launch, const at::Tensor& like) {
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = loaded_.try_emplace(layout_key(launch) + like.device().str());
  if (!is_new) return place->second.get();
  auto source = source_for(launch);
  std::string failure = source.ok() ? "" : source.error();
  if (source.ok()) {
    const auto code = library().code(source->text, device::module().fusion.architecture(like));
    if (code.ok()) {
      void* kernel = device::module().fusion.load(**code, kKernelName, like);
      place->second = std::make_unique<Loaded>(Loaded{*std::move(source), kernel});
      place->second->source.text.clear();
    } else {
      failure = code.error();
    }
  }
  if (!failure.empty()) {
    services_->log->say_once(
        "kernels", fmt::format("{} operators of the model run one by one, because no kernel could be made for them: {}",
                               region_.nodes.size(), failure));
  }
  return place->second.get();
}

bool FusionExecutor::run(const std::vector<int64_t>& leading, const std::vector<at::Tensor>& inputs,
                         const std::vector<at::Tensor>& outputs) {
  const Launch launch = plan_launch(region_, leading, inputs, outputs);
  const at::Tensor& like = inputs.at(0);
  const Loaded* found = loaded(launch, like);
  if (found == nullptr) return false;
  const auto& source = found->source;
  const int64_t blocks = num_blocks(source, launch.rows, sums_rows(region_));
  if (launch.rows * source.chunks_per_row >= std::numeric_limits<int32_t>::max()) return false;

  std::vector<at::Tensor> partials(outputs.size());
  std::vector<int64_t> arguments{launch.rows};
  arguments.insert(arguments.end(), launch.sizes.begin(), launch.sizes.end());
  for (size_t i = 0; i < inputs.size(); ++i) {
    arguments.push_back(reinterpret_cast<int64_t>(inputs[i].const_data_ptr()));
    arguments.insert(arguments.end(), launch.strides[i].begin(), launch.strides[i].end());
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    void* to = nullptr;
    if (is_summed(region_, i)) {
      const int64_t width = region_.node(region_.outputs[i].value).width;
      partials[i] = at::empty({blocks * source.rows_per_block(), width}, like.options().dtype(at::kFloat));
      to = partials[i].mutable_data_ptr();
    } else {
      to = outputs[i].mutable_data_ptr();
    }
    const auto& strides = launch.strides[inputs.size() + i];
    arguments.push_back(reinterpret_cast<int64_t>(to));
    arguments.insert(arguments.end(), strides.begin(), strides.end() - 1);
  }
  const auto noted = services_->notes_maxima ? outputs_with_maximum(region_) : std::vector<size_t>();
  const int64_t num_noted = std::ssize(noted);
  at::Tensor maxima;
  if (num_noted > 0) maxima = at::zeros({num_noted, device::kMaximumSize}, like.options().dtype(at::kInt));
  for (int64_t i = 0; i < num_noted; ++i) {
    arguments.push_back(reinterpret_cast<int64_t>(maxima.mutable_data_ptr<int32_t>() + i * device::kMaximumSize));
  }
  device::module().fusion.launch(found->kernel, static_cast<uint32_t>(blocks), static_cast<uint32_t>(source.threads),
                                 arguments.data(), like, device::overlaps_launches());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (partials[i].defined()) device::module().fusion.column_totals(partials[i], outputs[i]);
  }
  for (int64_t i = 0; i < num_noted; ++i) device::note_maximum(outputs[noted[static_cast<size_t>(i)]], maxima[i]);
  return true;
}

}  // namespace dslaunch::runtime::model::fusion
