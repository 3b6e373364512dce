#include "runtime/model/layers/attention_mask.hpp"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <limits>
#include <utility>

#include "runtime/device/device_module.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using constants::MaskKind;

double largest(at::ScalarType type) {
  return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "largest",
                                         [] { return static_cast<double>(std::numeric_limits<scalar_t>::max()); });
}

}  // namespace

at::Tensor combine_masks(const at::Tensor& one, const at::Tensor& other, constants::KnownMasks& masks) {
  if (one.scalar_type() == at::kBool && other.scalar_type() == at::kBool && one.device() == other.device()) {
    for (const auto& [known, rest] : {std::pair(&one, &other), std::pair(&other, &one)}) {
      if (masks.kind_of(*known, !device::is_capturing(one.device())) == MaskKind::kFull)
        return rest->expand(at::infer_size(one.sizes(), other.sizes()));
    }
  }
  return at::__and__(one, other);
}

at::Tensor without_repetitions(const at::Tensor& mask) {
  at::Tensor out = mask;
  for (int64_t dim = 0; dim + 1 < mask.dim(); ++dim) {
    if (mask.stride(dim) == 0 && mask.size(dim) > 1) out = out.narrow(dim, 0, 1);
  }
  return out;
}

at::Tensor in_type(const at::Tensor& mask, at::ScalarType type) {
  const double limit = largest(type);
  if (limit >= largest(mask.scalar_type())) return mask.to(type);
  return at::where(mask.isinf(), mask, mask.clamp(-limit, limit)).to(type);
}

at::Tensor fit_mask(const at::Tensor& mask, at::ScalarType query_type) {
  const bool is_additive = at::isFloatingType(mask.scalar_type()) && at::isFloatingType(query_type);
  at::Tensor out = is_additive && mask.scalar_type() != query_type ? in_type(mask, query_type) : mask;
  const bool is_apart = out.dim() > 0 && out.size(-1) > 1 && out.stride(-1) != 1;
  return is_apart ? out.contiguous() : out;
}

at::Tensor as_numbers(const at::Tensor& mask, at::ScalarType type, double forbidden) {
  const auto options = mask.options().dtype(type);
  return at::where(mask, at::zeros({}, options), at::full({}, forbidden, options));
}

bool ConvertedMasks::is_of(const Kept& kept, const at::Tensor& mask, int64_t kind) {
  return !kept.source.expired() && kept.source._unsafe_get_target() == mask.storage().unsafeGetStorageImpl() &&
         kept.version == static_cast<uint32_t>(mask._version()) && kept.kind == kind &&
         kept.offset == mask.storage_offset() && mask.sizes() == at::IntArrayRef(kept.sizes) &&
         mask.strides() == at::IntArrayRef(kept.strides) && kept.is_captured == device::is_capturing(mask.device());
}

at::Tensor ConvertedMasks::get(const at::Tensor& mask, int64_t kind,
                               const std::function<at::Tensor(const at::Tensor&)>& convert) {
  if (!mask.has_storage() || mask.requires_grad()) return convert(mask);
  const std::lock_guard lock(mutex_);
  for (const Kept& kept : kept_) {
    if (is_of(kept, mask, kind)) return kept.converted;
  }
  std::erase_if(kept_, [](const Kept& kept) { return kept.source.expired(); });
  if (kept_.size() == kMaxKept) kept_.pop_back();
  kept_.push_front({mask.storage().getWeakStorageImpl(), static_cast<uint32_t>(mask._version()), mask.storage_offset(),
                    kind, mask.sizes().vec(), mask.strides().vec(), device::is_capturing(mask.device()),
                    convert(mask)});
  return kept_.front().converted;
}

}  // namespace dslaunch::runtime::model::layers
